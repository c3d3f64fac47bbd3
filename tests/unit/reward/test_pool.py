import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.messages import Task, Verdict
from services.reward.pool import ALLOWANCES_S, Pool, open_pool
from services.reward.verifiers import error

BOMB = r"\boxed{\dfrac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}}"
SETTINGS = {"timeout_s": 2.0, "memory_bytes": 2 << 30, "recycle_after": 1000, "queue_limit": 64}


def math(gold: str) -> Task:
    return Task(verifier="math", gold=gold)


async def test_answers_keep_their_place_whatever_they_are() -> None:
    outputs = [r"\boxed{137}", "I don't know.", "", r"\boxed{136}", r"\boxed{137}"]
    async with open_pool(2, **SETTINGS) as pool:  # type: ignore[arg-type]
        verdicts = await asyncio.gather(*(pool.judge(output, math("137")) for output in outputs))
    assert [v.verdict for v in verdicts] == ["correct", "wrong", "wrong", "wrong", "correct"]


async def test_bombs_do_not_stop_the_others_and_the_workers_recover() -> None:
    async with open_pool(2, **SETTINGS) as pool:  # type: ignore[arg-type]
        start = time.monotonic()
        outputs = [BOMB if place % 5 == 0 else r"\boxed{7}" for place in range(50)]
        verdicts = await asyncio.gather(*(pool.judge(output, math("7")) for output in outputs))
        assert time.monotonic() - start < 30
        assert all(v.verdict == ("wrong" if place % 5 == 0 else "correct") for place, v in enumerate(verdicts))
        assert len(pool.pids) == 2
        for pid in pool.pids:
            os.kill(pid, 0)


async def test_a_worker_killed_from_outside_costs_a_retry_and_no_verdict() -> None:
    async with open_pool(1, **SETTINGS) as pool:  # type: ignore[arg-type]
        for _ in range(3):
            os.kill(pool.pids[0], signal.SIGKILL)
            verdict = await pool.judge(r"\boxed{7}", math("7"))
            assert verdict.verdict == "correct"


async def test_a_row_without_a_gold_answer_is_an_error_never_correct() -> None:
    async with open_pool(1, **SETTINGS) as pool:  # type: ignore[arg-type]
        verdict = await pool.judge(r"\boxed{}", math(""))
    assert (verdict.verdict, verdict.reason) == ("error", "bad_gold")


async def test_no_worker_outlives_its_pool() -> None:
    async with open_pool(2, **SETTINGS) as pool:  # type: ignore[arg-type]
        pids = pool.pids
    deadline = time.monotonic() + 5
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: ASYNC240


class Crowded:
    """Workers on a machine where what is asked with less than `needed_s` does not get the processor."""

    def __init__(self, needed_s: float) -> None:
        self.needed_s = needed_s
        self.order: list[tuple[str, float]] = []

    def judge(self, output: str, _: Task, allowance_s: float) -> Verdict:
        self.order.append((output, allowance_s))
        is_hard = output.startswith("hard") and allowance_s < self.needed_s
        return error("starved") if is_hard else Verdict(verdict="correct", score=1.0, reason="")


async def test_what_the_others_starved_is_asked_again_behind_them_with_more_time() -> None:
    with ThreadPoolExecutor(1) as threads:
        workers = Crowded(needed_s=ALLOWANCES_S[1])
        pool = Pool(workers, threads, 64)  # type: ignore[arg-type]
        verdicts = await asyncio.gather(*(pool.judge(output, math("7")) for output in ("hard", "a", "b")))
        assert [verdict.verdict for verdict in verdicts] == ["correct"] * 3
        assert workers.order == [*((name, ALLOWANCES_S[0]) for name in ("hard", "a", "b")), ("hard", ALLOWANCES_S[1])]


async def test_what_never_gets_the_processor_is_an_error_and_not_wrong() -> None:
    with ThreadPoolExecutor(1) as threads:
        workers = Crowded(needed_s=1e9)
        verdict = await Pool(workers, threads, 64).judge("hard", math("7"))  # type: ignore[arg-type]
        assert (verdict.verdict, verdict.reason) == ("error", "starved")
        assert workers.order == [("hard", allowance_s) for allowance_s in ALLOWANCES_S]


@pytest.mark.parametrize("number", [1, 8])
async def test_all_workers_are_there_again_after_all_were_killed(number: int) -> None:
    async with open_pool(number, **SETTINGS) as pool:  # type: ignore[arg-type]
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        verdicts = await asyncio.gather(*(pool.judge(r"\boxed{7}", math("7")) for _ in range(2 * number)))
        assert all(verdict.verdict == "correct" for verdict in verdicts)
        assert len(set(pool.pids)) == number


def test_the_pool_works_off_the_main_thread() -> None:
    found: list[str] = []

    async def judge() -> None:
        async with open_pool(1, **SETTINGS) as pool:  # type: ignore[arg-type]
            found.append((await pool.judge(r"\boxed{7.41\%}", math(r"7.41\%"))).verdict)

    thread = threading.Thread(target=lambda: asyncio.run(judge()))
    thread.start()
    thread.join()
    assert found == ["correct"]
