import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from common.messages import Task, Verdict
from services.reward.gate import Gate
from services.reward.pool import Pool, open_pool
from services.reward.turns import LEVELS, Turn
from services.reward.verifiers import error
from services.reward.workers import EVICTED, STARVED

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
    """Workers on a machine where what is asked below level `needed` does not get the processor."""

    def __init__(self, needed: int, reason: str = STARVED) -> None:
        self.needed = needed
        self.reason = reason
        self.order: list[tuple[str, int]] = []

    def judge(self, output: str, _: Task, turn: Turn) -> Verdict:
        self.order.append((output, turn.level))
        if output.startswith("hard") and turn.level < self.needed:
            turn.level += self.reason == EVICTED  # it used what it was allowed
            return error(self.reason)
        return Verdict(verdict="correct", score=1.0, reason="")


@pytest.mark.parametrize("reason", [STARVED, EVICTED])
async def test_what_gave_way_to_the_others_is_asked_again_behind_them(reason: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        workers = Crowded(needed=1, reason=reason)
        pool = Pool(workers, threads, Gate(1), 64)  # type: ignore[arg-type]
        verdicts = await asyncio.gather(*(pool.judge(output, math("7")) for output in ("hard", "a", "b")))
        assert [verdict.verdict for verdict in verdicts] == ["correct"] * 3
        assert workers.order == [("hard", 0), ("a", 0), ("b", 0), ("hard", 1)]


async def test_what_never_gets_the_processor_is_an_error_and_not_wrong() -> None:
    with ThreadPoolExecutor(1) as threads:
        workers = Crowded(needed=LEVELS)
        pool = Pool(workers, threads, Gate(1), 64)  # type: ignore[arg-type]
        verdict = await pool.judge("hard", math("7"))
        assert (verdict.verdict, verdict.reason) == ("error", STARVED)
        assert workers.order == [("hard", level) for level in range(LEVELS)]


async def test_answers_that_come_later_go_before_those_that_hang() -> None:
    hang = Task(verifier="regex", gold="^(a+)+$")
    async with open_pool(2, **SETTINGS) as pool:  # type: ignore[arg-type]
        hanging = [asyncio.create_task(pool.judge("a" * 64 + "b", hang)) for _ in range(8)]
        await asyncio.sleep(0.5)
        start = time.monotonic()
        verdicts = await asyncio.gather(*(pool.judge(r"\boxed{7}", math("7")) for _ in range(8)))
        seconds = time.monotonic() - start
        assert [verdict.verdict for verdict in verdicts] == ["correct"] * 8
        assert not any(task.done() and task.result().reason != "timeout" for task in hanging)
        assert {(v.verdict, v.reason) for v in await asyncio.gather(*hanging)} == {("wrong", "timeout")}
        assert seconds < SETTINGS["timeout_s"]  # less than one of those that hang takes


async def test_time_stopped_is_no_time_in_the_verifier() -> None:
    """It is stopped while 300 others go first, and its seconds do not show it."""
    slow = Task(verifier="python:tests.unit.reward.functions:busy", gold="0.3")
    async with open_pool(4, functions=[slow.verifier], **SETTINGS) as pool:  # type: ignore[arg-type]
        others = [pool.judge(rf"\boxed{{{n}}}", math("7")) for n in range(300)]
        verdict, *_ = await asyncio.gather(pool.judge("", slow), *others)
    assert verdict.verdict == "correct"
    assert verdict.seconds < 0.9


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
