"""What a process did, as a MessagePack stream that `dapo audit` reads.

One file per process incarnation; each record is one map with `event`, `time` and the fields of the event. A record is
in the kernel's hands when `append` returns, so it survives the death of the process; a torn last record (power loss)
is skipped by the reader. The events and their fields:

    filter    issued {tx, id, min_version}      settled {tx, id, fate, reason}     batched {tx, step, ids, oldest}
              eval_dead {tx, id}: a held-out prompt that nobody will answer
              decided {tx}: a transaction that none of these belongs to
              Every event carries `tx`, the version of the filter's register that commits it: an event of a transaction
              that was never committed is overruled by the same `tx` written by the next incarnation, so there is at
              least one for every transaction.
    rollout   loaded {version, digest}          sampled {id, spans, seconds}
    reward    scored {id, correct, wrong, error, seconds}
    learner   resumed {step}   trained {step, ids, oldest, tokens}   published {version, digest}   checkpointed {step}
    broker    dead {queue, id}    retried {queue, id}    dropped {queue, id}: decided by a person
"""

import os
import time
from pathlib import Path
from typing import Any

import msgspec


class History:
    """Append-only event file of one process incarnation."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create `folder`/`name`-NANOSECONDS.msgpack; later incarnations sort after earlier ones.

        Also where the wall clock was set back: then a nanosecond after the newest file.
        """
        folder.mkdir(parents=True, exist_ok=True)
        newest = max((int(path.stem.rpartition("-")[2]) for path in folder.glob("*-*.msgpack")), default=0)
        path = folder / f"{name}-{max(time.time_ns(), newest + 1):020d}.msgpack"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.msgpack.Encoder()

    def append(self, event: str, **fields: Any) -> None:
        """Write one event; it is safe from the death of this process when the call returns."""
        os.write(self._file, self._encoder.encode({"event": event, "time": time.time(), **fields}))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
