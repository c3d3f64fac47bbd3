"""The life of a service process: configuration, logs, metrics, health, signals, then its coroutine until its end.

    def main(argv=None) -> int:
        return serve("reward", RewardConfig, run, argv)

    async def run(process: Process[RewardConfig]) -> None: ...

Exit status: 0 done or stopped by a signal, 1 a bug (traceback in the log; the supervisor restarts it), 2 a mistake of
the user (one sentence on stderr; restarting would not help).
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from common import config, endpoint, logs
from common.config import RunConfig
from common.disk import full_message, is_full
from common.errors import USER_ERROR_EXIT_STATUS, UserError
from common.health import Health
from common.history import History

log = logging.getLogger(__name__)

HOST = "host"
"""Value of `--replica` that stands for the name of this machine or container."""
BEAT_S = 1.0


class ServiceConfig(Protocol):
    """What the section of every service has."""

    @property
    def metrics_port(self) -> int:
        """Port of /metrics of replica 0, the next replicas count up; -1 for none."""

    @property
    def metrics_host(self) -> str:
        """Address that /metrics is bound to."""


C = TypeVar("C", bound=ServiceConfig)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Process(Generic[C]):
    """What a service's coroutine is given."""

    role: str
    """`broker`, `rollout`, `reward`, `filter` or `learner`."""
    replica: str
    """Which of the replicas of the role; unique among those alive."""
    run: RunConfig
    config: C
    history: History = field(repr=False)
    health: Health = field(repr=False, default_factory=Health)

    @property
    def name(self) -> str:
        """`ROLE-REPLICA`, the name under which the broker knows this process."""
        return f"{self.role}-{self.replica}"


def serve(
    role: str,
    section: type[C],
    run: Callable[[Process[C]], Awaitable[None]],
    argv: Sequence[str] | None = None,
) -> int:
    """Run one service to its end; returns the exit status."""
    given = arguments(role, argv)
    try:
        process = _prepare(role, section, given)
    except (UserError, OSError) as error:
        mistake = _mistake_in(error, Path.cwd())
        if mistake is None:
            raise
        print(f"dapo {role}: {mistake}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    try:
        asyncio.run(_until_signal(run(process), process.health))
    except Exception as error:
        mistake = _mistake_in(error, process.run.path)
        if mistake is None:
            log.exception("service died")
            return 1
        log.error("user_error", extra={"message_text": str(mistake)})
        print(f"dapo {role}: {mistake}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    finally:
        process.history.close()
    return 0


def _mistake_in(error: BaseException, folder: Path) -> UserError | None:
    """What the user can mend of what ended the service, a full disk too; a task group wraps what its tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, (_mistake_in(each, folder) for each in error.exceptions)), None)
    if is_full(error):
        return UserError(full_message(folder))
    return error if isinstance(error, UserError) else None


def arguments(role: str, argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line of a service: `config`, `overrides` and `replica`."""
    parser = argparse.ArgumentParser(prog=f"dapo {role}", description=f"Run the {role} service of a run.")
    parser.add_argument("config", help="TOML file of the run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values that replace the file's")
    parser.add_argument(
        "--replica", default="0", help=f"name of this replica among those of its role; `{HOST}`: that of the machine"
    )
    given = parser.parse_intermixed_args(argv)
    given.replica = replica_name(given.replica, host=socket.gethostname())
    return given


def replica_name(given: str, *, host: str) -> str:
    """The replica's name; that of a machine is never a number, since numbered replicas have ports of their own."""
    if given != HOST:
        return given
    return f"{HOST}-{host}" if host.isdecimal() else host


def _prepare(role: str, section: type[C], arguments: argparse.Namespace) -> Process[C]:
    """Read the configuration, start logs and metrics."""
    tree = config.read(arguments.config, arguments.overrides)
    run = config.section(tree, "run", RunConfig)
    own = config.section(tree, role, section)
    name = f"{role}-{arguments.replica}"
    logs.start(name, run.path / "logs")
    health = Health()
    _open_endpoint(role, own, arguments.replica, health)
    return Process(
        role=role,
        replica=arguments.replica,
        run=run,
        config=own,
        history=History(run.path / "history", name),
        health=health,
    )


def _open_endpoint(role: str, own: ServiceConfig, replica: str, health: Health) -> None:
    """Start /metrics and /healthz; replica number r listens on `metrics_port` + r, a named one on `metrics_port`."""
    if own.metrics_port < 0:
        return
    port = own.metrics_port + (int(replica) if replica.isdigit() else 0) if own.metrics_port else 0
    try:
        endpoint.serve(port, own.metrics_host, health)
    except OSError as error:
        raise UserError(
            f"metrics port {port} cannot be opened ({error.strerror}): another run may use it; "
            f"set [{role}] metrics_port to a free port or to 0"
        ) from error


async def uncancelled(work: Awaitable[None]) -> None:
    """Await the work to its own end, whatever signal asks to stop before."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


async def in_thread(loop: Callable[[T, threading.Event], None], given: T) -> None:
    """Run a loop that blocks in a thread, until it ends; a cancellation sets its event, and waits for its end."""
    stop = threading.Event()
    task = asyncio.create_task(asyncio.to_thread(loop, given, stop))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await task
        raise


async def _until_signal(work: Awaitable[None], health: Health) -> None:
    """Await the work; SIGTERM or SIGINT cancels it, which counts as a clean end. A second one ends at once."""
    task = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            os._exit(130)
        stopped = True
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    beats = asyncio.ensure_future(_beat(health))
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        beats.cancel()


async def _beat(health: Health) -> None:
    """Say that the event loop turns, for ever."""
    while True:
        health.beat("events")
        await asyncio.sleep(BEAT_S)
