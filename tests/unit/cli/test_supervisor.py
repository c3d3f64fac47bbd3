"""The supervisor with real child processes: small scripts instead of services."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import pytest

from common.history import History
from services.cli.board import Board, Outcome
from services.cli.children import Spec
from services.cli.guard import MARK, guarded, marked
from services.cli.supervisor import Supervisor

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


class Stage:
    """A run folder with scripts for services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.board = Board()
        self.history = History(folder / "history", "supervisor-0")

    def supervisor(self, *, grace_s: float = 5.0, **scripts: str) -> Supervisor:
        specs = [
            Spec(
                name=f"{role}-0",
                command=[sys.executable, "-c", script],
                output=self.folder / f"{role}-0.out",
                environment={**os.environ, MARK: self.mark},
            )
            for role, script in scripts.items()
        ]
        return Supervisor(
            specs=specs, steps=3, history=self.history, board=self.board, grace_s=grace_s, first_wait_s=0.01
        )

    def events(self) -> list[tuple[str, str]]:
        (path,) = (self.folder / "history").glob("*.msgpack")
        with path.open("rb") as file:
            return [(record["event"], record["name"]) for record in msgpack.Unpacker(file)]

    async def until(self, text: str, role: str) -> None:
        path = self.folder / f"{role}-0.out"
        await eventually(lambda: path.exists() and text in path.read_text())


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.history.close()
    deadline = time.monotonic() + 2
    while marked(stage.mark) and time.monotonic() < deadline:
        time.sleep(0.01)  # a killed process is gone a moment after the signal
    assert marked(stage.mark) == [], "a process outlived its supervisor"


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (what other processes do sends no event)
        await asyncio.sleep(0.01)


async def never() -> Outcome:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_run_that_is_done_ends_all_services_with_status_0(stage: Stage) -> None:
    async def done() -> Outcome:
        await stage.until("up", "learner")
        return Outcome(status=0)

    script = "print('up', flush=True); import time; time.sleep(60)"
    assert (await stage.supervisor(broker=SLEEP, learner=script).run(done())).status == 0


async def test_a_service_that_crashes_is_started_again_and_the_restart_is_recorded(stage: Stage) -> None:
    flag = stage.folder / "crashed"
    script = (
        f"import pathlib, time; p = pathlib.Path({str(flag)!r}); seen = p.exists(); p.touch(); seen or exit(1); "
        "print('second', flush=True); time.sleep(60)"
    )

    async def done() -> Outcome:
        await stage.until("second", "reward")
        return Outcome(status=0)

    assert (await stage.supervisor(reward=script).run(done())).status == 0
    assert stage.board.restarts == {"reward-0": 1}
    assert stage.board.notes.get_nowait() == "reward-0 ended (status 1); started again"
    assert stage.events() == [
        ("started", "reward-0"), ("died", "reward-0"), ("restarted", "reward-0"), ("started", "reward-0"),
    ]  # fmt: skip


async def test_a_service_that_names_a_mistake_of_the_user_ends_the_run_with_its_sentence(stage: Stage) -> None:
    script = (
        "import sys; print('noise'); print('dapo filter: row 3 of x.jsonl has no answer', file=sys.stderr); exit(2)"
    )
    outcome = await stage.supervisor(broker=SLEEP, filter=script).run(never())
    assert outcome == Outcome(status=2, message="filter-0: row 3 of x.jsonl has no answer")


async def test_a_crash_loop_ends_the_run_with_the_last_lines_of_the_service(stage: Stage) -> None:
    outcome = await stage.supervisor(broker=SLEEP, learner="raise SystemError('no memory left')").run(never())
    assert outcome.status == 1
    assert "learner-0 died 5 times without a step of the run" in outcome.message
    assert "SystemError: no memory left" in outcome.message


async def test_a_run_that_makes_steps_is_not_a_crash_loop(stage: Stage) -> None:
    count = stage.folder / "count"

    async def done() -> Outcome:
        while not count.exists() or len(count.read_text()) < 8:
            stage.board.step += 1
            await asyncio.sleep(0.005)
        return Outcome(status=0)

    script = f"open({str(count)!r}, 'a').write('x'); exit(1)"
    assert (await stage.supervisor(rollout=script).run(done())).status == 0


async def test_what_a_killed_service_had_started_is_ended_before_it_is_started_again(stage: Stage) -> None:
    pids = stage.folder / "pids"
    child = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    script = f"{child}; print(p.pid, file=open({str(pids)!r}, 'a'), flush=True); import os, time; time.sleep(60)"

    async def kill_once() -> Outcome:
        await eventually(lambda: pids.exists() and pids.read_text().endswith("\n"))
        first = int(pids.read_text())
        assert first in marked(stage.mark)
        os.kill(os.getpgid(first), signal.SIGKILL)
        await eventually(lambda: len(pids.read_text().split()) == 2)
        assert first not in marked(stage.mark)
        return Outcome(status=0)

    assert (await stage.supervisor(rollout=script).run(kill_once())).status == 0


async def test_ctrl_c_ends_all_services_with_status_130(stage: Stage) -> None:
    async def interrupt() -> Outcome:
        await stage.until("up", "learner")
        os.kill(os.getpid(), signal.SIGINT)
        return await never()

    script = "print('up', flush=True); import time; time.sleep(60)"
    outcome = await stage.supervisor(broker=SLEEP, learner=script).run(interrupt())
    assert outcome.status == 130
    assert "--resume" in outcome.message


async def test_a_second_ctrl_c_kills_a_service_that_does_not_end(stage: Stage) -> None:
    async def interrupt_twice() -> Outcome:
        await stage.until("up", "learner")
        os.kill(os.getpid(), signal.SIGINT)
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        return await never()

    start = time.monotonic()
    outcome = await stage.supervisor(grace_s=50.0, learner=STUBBORN).run(interrupt_twice())
    assert outcome.status == 130
    assert time.monotonic() - start < 20


async def test_a_service_that_does_not_end_is_killed_after_the_grace(stage: Stage) -> None:
    async def done() -> Outcome:
        await stage.until("up", "learner")
        return Outcome(status=0)

    assert (await stage.supervisor(grace_s=0.2, learner=STUBBORN).run(done())).status == 0


async def test_services_that_end_after_the_last_step_are_not_started_again(stage: Stage) -> None:
    stage.board.step = 3

    async def done() -> Outcome:
        await stage.until("bye", "learner")
        await asyncio.sleep(0.3)
        return Outcome(status=0)

    assert (await stage.supervisor(learner="print('bye', flush=True)").run(done())).status == 0
    assert stage.events() == [("started", "learner-0"), ("died", "learner-0")]


async def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    # A supervisor that starts a service which starts another process, in a session of its own.
    service = (
        "import subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True); time.sleep(60)"
    )
    script = (
        "import os, subprocess, sys, time; from services.cli.guard import MARK, guarded\n"
        f"with guarded({mark!r}):\n"
        f"    subprocess.Popen([sys.executable, '-c', {service!r}], start_new_session=True,"
        f" env={{**os.environ, MARK: {mark!r}}})\n"
        "    time.sleep(60)"
    )
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    await eventually(lambda: len(marked(mark)) == 2)
    supervisor.kill()
    await supervisor.wait()
    await asyncio.wait_for(eventually(lambda: not marked(mark)), timeout=10)


def test_the_guard_ends_what_is_left_when_its_block_ends() -> None:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    with guarded(mark):
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", SLEEP], {**os.environ, MARK: mark}, setsid=True)
        while not marked(mark):
            time.sleep(0.01)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
