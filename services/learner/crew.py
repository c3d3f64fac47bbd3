"""Several ranks behind the verbs of one learner.

rank 0    Lead(learner, world)      says what it is about to do, then does it
others    follow(learner, world)    wait for rank 0's word, and do the same

word = MessagePack [verb, frames]   train with the frames of the batch, stage, save, stop
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from common import codec
from common.codec import Arrays
from common.messages import Batch, Feedback, Policy
from services.learner.learner import Learner
from services.learner.ranks import World

Word = tuple[str, list[bytes]]


class Lead:
    """The learner of rank 0, for the service."""

    def __init__(self, learner: Learner, world: World) -> None:
        self._learner = learner
        self._world = world
        self._lock = threading.Lock()
        """One verb at a time: `stop` waits for a step that a cancelled service left behind in its thread."""

    @property
    def step(self) -> int:
        """Batches trained."""
        return self._learner.step

    def train(self, batch: Batch, arrays: Sequence[Arrays]) -> tuple[dict[str, float], Feedback]:
        """See `Learner.train`."""
        with self._lock:
            self._say("train", codec.encode(batch, *arrays))
            return self._learner.train(batch, arrays)

    def publish(self) -> Policy | None:
        """See `Learner.publish`."""
        write = self.stage()
        return write() if write else None

    def stage(self) -> Callable[[], Policy] | None:
        """See `Learner.stage`; what it returns needs no other rank."""
        with self._lock:
            self._say("stage")
            return self._learner.stage()

    def save(self) -> Path:
        """See `Learner.save`."""
        with self._lock:
            self._say("save")
            return self._learner.save()

    def begin_save(self) -> Callable[[], Path]:
        """See `Learner.begin_save`: all ranks write now."""
        path = self.save()
        return lambda: path

    def stop(self) -> None:
        """Let the other ranks end."""
        with self._lock:
            self._say("stop")

    def _say(self, verb: str, frames: Sequence[bytes] = ()) -> None:
        self._world.from_lead(msgspec.msgpack.encode((verb, list(frames))))


def follow(learner: Learner, world: World) -> None:
    """Do what rank 0 says until it says stop."""
    while True:
        verb, frames = msgspec.msgpack.decode(world.from_lead(b""), type=Word)
        if verb == "train":
            learner.train(*codec.decode_batch(frames))
        elif verb == "stage":
            learner.stage()
        elif verb == "save":
            learner.save()
        else:
            return
