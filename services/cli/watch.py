"""How far the run is, as the filter states it in the register `run`; the supervisor's only link to the broker."""

import asyncio
import contextlib

import msgspec

from common.client import QueueClient, Watched, connect_to_broker
from common.codec import decode
from common.config import RunConfig
from common.messages import BATCHES, RUN, RunState
from common.protocol import QueueStats, Register
from services.cli.board import Board, Outcome

DRAIN_S = 60.0
"""How long the learner may take after the last evaluation to write its last checkpoint and settle its batches."""


async def run_ended(run: RunConfig, board: Board, *, resumed: bool) -> Outcome:
    """Register `run` -> outcome. Waits for the filter to say done or failed."""
    async with connect_to_broker(run, "supervisor-0") as client:
        outcome = await _final_state(client.watch(RUN), board, steps=run.steps, resumed=resumed)
        if outcome.status == 0:
            await _drained(client)
        return outcome


async def _final_state(states: Watched, board: Board, *, steps: int, resumed: bool) -> Outcome:
    """What a resumed run finds is the state of the run before, until the filter states its own."""
    old = resumed
    while True:
        register = await states.changed()
        if register.version == 0:
            continue
        state = decode(RunState, [register.value])
        board.step = state.step
        if state.phase == "done" and (state.step >= steps or not old):
            return Outcome(status=0)
        if state.phase == "failed" and not old:
            return Outcome(status=1, message=state.message)
        old = False


async def _drained(client: QueueClient) -> None:
    """Until no batch is unsettled, but not longer than `DRAIN_S`."""
    batches = client.watch(f"queue/{BATCHES}")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while not _is_empty(await batches.changed()):
                pass


def _is_empty(register: Register) -> bool:
    stats = msgspec.msgpack.decode(register.value, type=QueueStats) if register.version else QueueStats()
    return stats.ready + stats.leased == 0
