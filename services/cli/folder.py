"""The run folder before a run: new, resumed or deleted; never silently reused.

A folder has progress once the learner has published the starting policy or the filter has written an event. Without
progress (say, the first start found a mistake in the data) it is made anew.
"""

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from common import config
from common.errors import UserError

CONFIG = "config.toml"
OPERATIONAL = (
    "run.steps", "run.broker", "run.heartbeat_s", "run.lease_s", "run.trackers",
    "run.stall_s", "broker.*", "*.metrics_*",
    "*.replicas", "*.workers", "rollout.max_*", "rollout.group_timeout_s",
    "rollout.kv_cache_gib", "rollout.gpu_memory_utilization",
    "rollout.tensor_parallel_size", "rollout.enforce_eager", "rollout.claims", "learner.record_batches",
    "learner.disk_wait_s", "learner.background_checkpoints",
    "learner.micro_batch_tokens", "learner.logprob_chunk", "learner.checkpoint_every",
    "learner.ranks", "learner.activation_checkpointing", "learner.compile", "learner.liger", "learner.cpu_offload",
    "learner.keep_*", "learner.max_skips", "learner.contract_limit", "learner.threads",
    "filter.max_dropped_in_a_row", "filter.reserve", "filter.low_keep_rate", "filter.excerpts",
)  # fmt: skip
"""Keys a resumed run may change: they decide how long, how fast and where, not what is computed."""


def prepare(path: Path, sections: Mapping[str, Any], *, resume: bool, fresh: bool) -> None:
    """Make the folder ready for the run and write its configuration; raises `UserError` if it may not be used."""
    if fresh:
        _delete(path)
    elif resume:
        _check_resumable(path, sections)
    elif has_progress(path):
        raise UserError(
            f"run folder {path} holds a run: go on with --resume, or choose another run.name=..., "
            "or delete it with --fresh"
        )
    else:
        _delete(path)
    path.mkdir(parents=True, exist_ok=True)
    config.write(path / CONFIG, sections)


def has_progress(path: Path) -> bool:
    """Whether something would be lost with the folder."""
    events = (path / "history").glob("filter-*.msgpack")
    return any((path / "weights").glob("v*")) or any(file.stat().st_size > 0 for file in events)


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Nobody else runs in this folder meanwhile; raises `UserError` if someone does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock_of(path).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"run folder {path} is in use by another `dapo run`: stop it, or choose another run.name=..."
            ) from None
        yield


def is_running(path: Path) -> bool:
    """Whether a `dapo run` holds the folder now."""
    lock = _lock_of(path)
    if not lock.exists():
        return False
    with lock.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock_of(path: Path) -> Path:
    whole = path.absolute()
    return whole.with_name(f".{whole.name}.lock")


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`section.key (OLD, now NEW)` for every value that differs and decides what is computed."""
    flat_old, flat_new = _flat(old), _flat(new)
    differing = [key for key in sorted(flat_old | flat_new) if flat_old.get(key) != flat_new.get(key)]
    return [
        f"{key} ({flat_old.get(key, 'unset')}, now {flat_new.get(key, 'unset')})"
        for key in differing
        if not any(fnmatch(key, pattern) for pattern in OPERATIONAL)
    ]


def _check_resumable(path: Path, sections: Mapping[str, Any]) -> None:
    if not (path / CONFIG).exists():
        raise UserError(f"run folder {path} holds no run to resume: start it without --resume, or check run.name")
    changed = changed_keys(config.read(path / CONFIG).tables, config.resolved(sections))
    if changed:
        raise UserError(
            f"the run in {path} was started with other values of {', '.join(changed)}: "
            "resume it with the same, or choose another run.name=..."
        )


def _delete(path: Path) -> None:
    """Remove a run folder; refuses a folder that does not look like one."""
    if not path.exists():
        return
    if any(path.iterdir()) and not (path / CONFIG).exists():
        raise UserError(f"{path} exists and is not a run folder ({CONFIG} is missing): choose another run.name=...")
    shutil.rmtree(path)


def _flat(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.items() if value is not None
    }
