"""When the register `run` ends a run."""

import asyncio
from collections.abc import Sequence

import msgspec

from common.client import Watched
from common.messages import RunState
from common.protocol import QueueStats, Register
from services.cli.board import Board, Outcome
from services.cli.watch import _final_state, _is_empty


async def ends(states: Sequence[RunState], *, resumed: bool = False, steps: int = 5) -> tuple[Outcome | None, Board]:
    """Write the states one after the other; the outcome after them, if there is one."""
    watched, board = Watched(), Board()
    task = asyncio.ensure_future(_final_state(watched, board, steps=steps, resumed=resumed))
    watched.put(Register(name="run", version=0, value=b""))
    await asyncio.sleep(0)
    for version, state in enumerate(states, 1):
        watched.put(Register(name="run", version=version, value=msgspec.msgpack.encode(state)))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    outcome = task.result() if task.done() else None
    task.cancel()
    return outcome, board


def state(phase: str, step: int, message: str = "") -> RunState:
    return RunState(phase=phase, step=step, message=message)  # type: ignore[arg-type]


async def test_a_running_state_tells_the_step_and_ends_nothing() -> None:
    outcome, board = await ends([state("running", 3)])
    assert (outcome, board.step) == (None, 3)


async def test_done_ends_the_run_with_status_0() -> None:
    outcome, board = await ends([state("running", 4), state("done", 5)])
    assert (outcome, board.step) == (Outcome(status=0), 5)


async def test_failed_ends_the_run_with_its_message() -> None:
    outcome, _ = await ends([state("failed", 2, "no group was kept")])
    assert outcome == Outcome(status=1, message="no group was kept")


async def test_a_resumed_run_ignores_the_failure_of_the_run_before_but_not_its_own() -> None:
    assert (await ends([state("failed", 2, "old")], resumed=True))[0] is None
    outcome, _ = await ends([state("failed", 2, "old"), state("running", 2), state("failed", 3, "new")], resumed=True)
    assert outcome == Outcome(status=1, message="new")


async def test_resuming_a_run_that_is_done_ends_at_once_unless_it_got_more_steps() -> None:
    assert (await ends([state("done", 5)], resumed=True))[0] == Outcome(status=0)
    assert (await ends([state("done", 5)], resumed=True, steps=9))[0] is None


def test_a_queue_is_empty_when_nothing_is_ready_or_leased() -> None:
    def register(**counts: int) -> Register:
        return Register(name="queue/batches", version=1, value=msgspec.msgpack.encode(QueueStats(**counts)))

    assert _is_empty(Register(name="queue/batches", version=0, value=b""))
    assert _is_empty(register(credit=3))
    assert not _is_empty(register(ready=1))
    assert not _is_empty(register(leased=1))
