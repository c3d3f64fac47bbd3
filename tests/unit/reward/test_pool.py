import asyncio
import os
import signal
import threading
import time

from common.messages import Task
from services.reward.pool import open_pool

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


def test_the_pool_works_off_the_main_thread() -> None:
    found: list[str] = []

    async def judge() -> None:
        async with open_pool(1, **SETTINGS) as pool:  # type: ignore[arg-type]
            found.append((await pool.judge(r"\boxed{7.41\%}", math(r"7.41\%"))).verdict)

    thread = threading.Thread(target=lambda: asyncio.run(judge()))
    thread.start()
    thread.join()
    assert found == ["correct"]
