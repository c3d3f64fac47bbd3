"""Keeps the services of a run alive until the run is over, then ends them all.

    start -> service runs -> it dies -> wait -> start ...          one `_keep` per service
    register `run` says done or failed -> end                      `watch`
    SIGINT, SIGTERM, SIGHUP -> end; a second one -> end at once    `_interrupted`

The first of these that has an outcome decides. The broker ends last, so that the others can say goodbye.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Sequence

from common.errors import USER_ERROR_EXIT_STATUS
from common.history import History
from services.cli.board import Board, Outcome
from services.cli.children import Child, Spec, sentence
from services.cli.restarts import FIRST_WAIT_S, LIMIT, Deaths

GRACE_S = 20.0
"""Between SIGTERM and SIGKILL: the learner finishes the step or the checkpoint that it is writing."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TAIL_LINES = 12


class Supervisor:
    """Runs once."""

    def __init__(
        self, *, specs: Sequence[Spec], steps: int, history: History, board: Board,
        grace_s: float = GRACE_S, first_wait_s: float = FIRST_WAIT_S,
    ) -> None:  # fmt: skip
        self._specs = specs
        self._steps = steps
        self._history = history
        self._board = board
        self._grace_s = grace_s
        self._first_wait_s = first_wait_s
        self._children: dict[str, Child] = {}

    async def run(self, watch: Awaitable[Outcome]) -> Outcome:
        """Services until the first outcome. Waits for `watch`, a service that cannot go on, or a signal."""
        endings = [asyncio.ensure_future(watch), asyncio.ensure_future(self._interrupted())]
        for spec in self._specs:
            endings.append(asyncio.ensure_future(self._keep(spec)))
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            return max((ending.result() for ending in done), key=lambda outcome: outcome.status)
        finally:
            for ending in endings:
                ending.cancel()
            await asyncio.gather(*endings, return_exceptions=True)
            await self._stop_all()

    async def _keep(self, spec: Spec) -> Outcome:
        """Start -> die -> start, for ever; returns when starting it again would not help."""
        deaths = Deaths(self._first_wait_s)
        while True:
            child = self._children[spec.name] = await Child.start(spec)
            self._history.append("started", name=spec.name, pid=child.process.pid)
            status = await child.ended()
            self._history.append("died", name=spec.name, status=status)
            deaths.record(time.monotonic(), self._board.step)
            if status == USER_ERROR_EXIT_STATUS:
                return Outcome(status=status, message=f"{spec.name}: {sentence(child.output())}")
            if deaths.is_loop:
                return Outcome(status=1, message=_loop_message(child))
            await asyncio.sleep(deaths.wait_s)
            if status == 0 and self._board.step >= self._steps:
                await asyncio.Event().wait()
            self._tell_restart(spec.name, status)

    def _tell_restart(self, name: str, status: int) -> None:
        self._history.append("restarted", name=name)
        self._board.restarts[name] += 1
        self._board.notes.put(f"{name} ended ({meaning(status)}); started again")

    async def _interrupted(self) -> Outcome:
        """The first signal ends the run; the second kills what is still there."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[int] = loop.create_future()

        def on_signal(number: int) -> None:
            if not first.done():
                first.set_result(number)
                self._board.notes.put("stopping; once more to force")
            else:
                for child in self._children.values():
                    child.kill()

        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal, number)
        return Outcome(status=128 + await first, message="stopped; `--resume` goes on from here")

    async def _stop_all(self) -> None:
        """End all services, the broker after the others."""
        alive = [child for child in self._children.values() if child.process.returncode is None]
        brokers = [child for child in alive if child.spec.name.startswith("broker-")]
        others = [child for child in alive if child not in brokers]
        for group in (others, brokers):
            await asyncio.gather(*(child.stop(self._grace_s) for child in group))


def meaning(status: int) -> str:
    """An exit status in words."""
    return f"status {status}" if status >= 0 else signal.Signals(-status).name


def _loop_message(child: Child) -> str:
    tail = "\n".join(child.output()[-TAIL_LINES:])
    return (
        f"{child.spec.name} died {LIMIT} times without a step of the run; its last lines ({child.spec.output}):\n{tail}"
    )
