"""Payload frames on disk: append-only segment files, each deleted as a whole when nothing unsettled lies in it.

    RUN/broker/000001.segment  the frames of one item after those of another, nothing between them

Where an item lies is written in SQLite (journal.py). Every start of the broker begins a new segment, so bytes that no
committed item points to (a torn tail) are never read and never appended to.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common.folders import fsync
from services.broker.state import Place


class Segments:
    """The payload files of one broker."""

    def __init__(self, folder: Path, *, segment_bytes: int, sync: bool) -> None:
        """Keep what is in `folder` and begin a new segment; with `sync`, `flush` forces bytes to disk."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sync = sync
        self._readers: dict[int, int] = {}
        self._users: Counter[int] = Counter()
        """By segment: items whose payload lies in it."""
        self._idle = {int(path.stem) for path in folder.glob("*.segment")}
        """Segments that may have lost their last user since the last sweep."""
        self._current, self._offset, self._committed = max(self._idle, default=0), 0, 0
        self._open_next()

    def write(self, frames: Sequence[bytes]) -> Place:
        """Append the frames of one item; they are with the kernel when this returns."""
        if self._offset >= self._segment_bytes:
            self.flush()
            os.close(self._writer)
            self._idle.add(self._current)
            self._open_next()
        place = Place(self._current, self._offset, tuple(map(len, frames)))
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        written = 0
        while written < len(data):
            written += os.pwrite(self._writer, data[written:] if written else data, self._offset + written)
        self._offset += len(data)
        return place

    def read(self, place: Place) -> list[bytes]:
        """The frames of an item."""
        if place.segment not in self._readers:
            self._readers[place.segment] = os.open(self._path(place.segment), os.O_RDONLY)
        reader, offset, frames = self._readers[place.segment], place.offset, []
        for length in place.lengths:
            frames.append(os.pread(reader, length, offset))
            offset += length
        return frames

    def hold(self, place: Place) -> None:
        """An item needs its payload."""
        self._users[place.segment] += 1

    def free(self, place: Place) -> None:
        """An item needs its payload no more, once this turn is committed."""
        self._users[place.segment] -= 1
        self._idle.add(place.segment)

    def flush(self) -> None:
        """Force what was written to disk, if the broker promises that."""
        if self._sync:
            os.fdatasync(self._writer)

    def rollback(self) -> None:
        """Forget what was written since the last commit, and who needs what: the caller holds all items again."""
        os.ftruncate(self._writer, self._committed)
        self._offset = self._committed
        self._users.clear()
        self._idle = {int(path.stem) for path in self._folder.glob("*.segment")}

    def sweep(self) -> None:
        """Delete the closed segments without users. Only after a commit: before it, a crash brings their items back."""
        self._committed = self._offset
        for segment in self._idle - {self._current}:
            if self._users[segment] == 0:
                del self._users[segment]
                if segment in self._readers:
                    os.close(self._readers.pop(segment))
                self._path(segment).unlink(missing_ok=True)
        self._idle.clear()

    def close(self) -> None:
        """Close all files."""
        for handle in (self._writer, *self._readers.values()):
            os.close(handle)

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:06d}.segment"

    def _open_next(self) -> None:
        self._current, self._offset, self._committed = self._current + 1, 0, 0
        self._writer = os.open(self._path(self._current), os.O_WRONLY | os.O_CREAT, 0o644)
        if self._sync:
            fsync(self._folder)  # a file without a name is lost with the power too
