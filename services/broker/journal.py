"""What survives the broker: metadata in SQLite, payload frames in append-only segment files beside it.

    RUN/broker.db              items, leases, sessions, registers, ids ever given, answered requests, settle counts
    RUN/broker/000001.segment  frames, one item after the other

Every change of one turn of the loop is one SQLite transaction. Payload bytes are with the kernel before the
transaction commits; `full` durability forces both to disk first. Bytes in a segment that no committed item points to
(a torn tail) are never read.
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from services.broker.state import Item, Place, Register

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, id TEXT NOT NULL, segment INTEGER NOT NULL, offset INTEGER NOT NULL,
    lengths BLOB NOT NULL, given_at REAL NOT NULL, deliveries INTEGER NOT NULL, holders BLOB NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS given (queue TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (queue, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (lease INTEGER PRIMARY KEY, seq INTEGER NOT NULL, session TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, incarnation TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (
    name TEXT NOT NULL, request INTEGER NOT NULL, PRIMARY KEY (name, request)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS registers (name TEXT PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS settled (
    queue TEXT NOT NULL, reason TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (queue, reason)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


class Loaded(NamedTuple):
    """What a restarted broker finds."""

    items: list[tuple[Item, bool]]
    """With whether it is dead; in order of seq."""
    leases: list[tuple[int, int, str]]
    """Lease number, seq of the item, session."""
    sessions: dict[str, str]
    """Incarnation by name."""
    registers: dict[str, Register]
    next_seq: int
    next_lease: int


class Journal:
    """The broker's disk. Not thread-safe: the loop that owns the core owns it."""

    def __init__(self, run_folder: Path, *, durability: Literal["process", "full"], segment_bytes: int) -> None:
        self._folder = run_folder / "broker"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._full = durability == "full"
        self._segment_bytes = segment_bytes
        self._db = sqlite3.connect(run_folder / "broker.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if self._full else 'OFF'}")
        self._db.executescript(SCHEMA)
        self._readers: dict[int, int] = {}
        self._live: dict[int, int] = {}
        """By segment: items that still need it."""
        self._idle: set[int] = set()
        """Segments to delete after the next commit: before it, a crash would bring their items back."""
        self._segment = max((int(p.stem) for p in self._folder.glob("*.segment")), default=0) + 1
        self._writer = self._open(self._segment)
        self._offset = 0

    def load(self) -> Loaded:
        """Everything that was committed; removes segments that nothing needs."""
        items = []
        for row in self._db.execute("SELECT * FROM items ORDER BY seq"):
            seq, queue, name, segment, offset, lengths, given_at, deliveries, holders, dead = row
            place = Place(segment, offset, msgspec.msgpack.decode(lengths, type=tuple[int, ...]))
            item = Item(seq, queue, name, place, given_at, deliveries, msgspec.msgpack.decode(holders, type=list[str]))
            items.append((item, bool(dead)))
            self._live[segment] = self._live.get(segment, 0) + 1
        self._idle = {int(path.stem) for path in self._folder.glob("*.segment")}
        self._delete_idle()
        counters = dict(self._db.execute("SELECT name, value FROM counters"))
        return Loaded(
            items=items,
            leases=list(self._db.execute("SELECT lease, seq, session FROM leases ORDER BY lease")),
            sessions=dict(self._db.execute("SELECT name, incarnation FROM sessions")),
            registers={n: Register(v, b) for n, v, b in self._db.execute("SELECT name, version, value FROM registers")},
            next_seq=counters.get("seq", 0) + 1,
            next_lease=counters.get("lease", 0) + 1,
        )

    def begin(self) -> None:
        """Start the transaction of a turn."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the turn durable."""
        if self._full:
            os.fsync(self._writer)
        self._db.execute("COMMIT")
        if self._idle:
            self._delete_idle()

    def write_frames(self, frames: Sequence[bytes]) -> Place:
        """Append payload frames to the current segment."""
        lengths = tuple(len(frame) for frame in frames)
        if self._offset >= self._segment_bytes:
            self._next_segment()
        place = Place(self._segment, self._offset, lengths)
        data = b"".join(frames)
        written = 0
        while written < len(data):
            written += os.pwrite(self._writer, data[written:] if written else data, self._offset + written)
        self._offset += len(data)
        return place

    def read_frames(self, place: Place) -> list[bytes]:
        """The payload frames of an item."""
        reader = self._readers.get(place.segment)
        if reader is None:
            reader = self._readers[place.segment] = os.open(self._path(place.segment), os.O_RDONLY)
        frames, offset = [], place.offset
        for length in place.lengths:
            frames.append(os.pread(reader, length, offset))
            offset += length
        return frames

    def was_given(self, queue: str, name: str) -> bool:
        """Whether an item of this id was ever given to the queue."""
        return self._db.execute("SELECT 1 FROM given WHERE queue=? AND id=?", (queue, name)).fetchone() is not None

    def add(self, item: Item) -> None:
        """A new item."""
        self._live[item.place.segment] = self._live.get(item.place.segment, 0) + 1
        self._db.execute(
            "INSERT INTO items VALUES (?,?,?,?,?,?,?,?,?,0)",
            (item.seq, item.queue, item.id, item.place.segment, item.place.offset,
             msgspec.msgpack.encode(item.place.lengths), item.given_at, 0, msgspec.msgpack.encode([])),
        )  # fmt: skip
        self._db.execute("INSERT INTO given VALUES (?,?)", (item.queue, item.id))
        self._count("seq", item.seq)

    def lease(self, number: int, item: Item, session: str) -> None:
        """An item was delivered."""
        self._db.execute("INSERT INTO leases VALUES (?,?,?)", (number, item.seq, session))
        self._update_deliveries(item)
        self._count("lease", number)

    def release(self, number: int, item: Item) -> None:
        """A lease ended without a settlement."""
        self._db.execute("DELETE FROM leases WHERE lease=?", (number,))
        self._update_deliveries(item)

    def settle(self, number: int, item: Item, reason: str) -> None:
        """A leased item is finished; its payload is free."""
        self._db.execute("DELETE FROM leases WHERE lease=?", (number,))
        self._db.execute("DELETE FROM items WHERE seq=?", (item.seq,))
        self._db.execute(
            "INSERT INTO settled VALUES (?,?,1) ON CONFLICT DO UPDATE SET count=count+1", (item.queue, reason)
        )
        self._live[item.place.segment] -= 1
        self._idle.add(item.place.segment)

    def bury(self, item: Item) -> None:
        """An item is a dead letter."""
        self._db.execute("UPDATE items SET dead=1 WHERE seq=?", (item.seq,))

    def open_session(self, name: str, incarnation: str) -> None:
        """A client, or a new incarnation of it."""
        self._db.execute("INSERT OR REPLACE INTO sessions VALUES (?,?)", (name, incarnation))
        self._db.execute("DELETE FROM done WHERE name=?", (name,))

    def close_session(self, name: str) -> None:
        """A client that is gone."""
        self._db.execute("DELETE FROM sessions WHERE name=?", (name,))
        self._db.execute("DELETE FROM done WHERE name=?", (name,))

    def write_register(self, name: str, register: Register) -> None:
        """A register's new value."""
        self._db.execute("INSERT OR REPLACE INTO registers VALUES (?,?,?)", (name, register.version, register.value))

    def is_done(self, name: str, request: int) -> bool:
        """Whether this request of the session was committed."""
        row = self._db.execute("SELECT 1 FROM done WHERE name=? AND request=?", (name, request)).fetchone()
        return row is not None

    def mark_done(self, name: str, request: int, acked: int) -> None:
        """Remember a committed request; forget those that the client has seen answered."""
        self._db.execute("DELETE FROM done WHERE name=? AND request<=?", (name, acked))
        self._db.execute("INSERT INTO done VALUES (?,?)", (name, request))

    def close(self) -> None:
        """Close all files."""
        for handle in (self._writer, *self._readers.values()):
            os.close(handle)
        self._db.close()

    def _count(self, name: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO counters VALUES (?,?)", (name, value))

    def _update_deliveries(self, item: Item) -> None:
        self._db.execute(
            "UPDATE items SET deliveries=?, holders=? WHERE seq=?",
            (item.deliveries, msgspec.msgpack.encode(item.holders), item.seq),
        )

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:06d}.segment"

    def _open(self, segment: int) -> int:
        return os.open(self._path(segment), os.O_WRONLY | os.O_CREAT, 0o644)

    def _next_segment(self) -> None:
        if self._full:
            os.fsync(self._writer)
        os.close(self._writer)
        self._idle.add(self._segment)
        self._segment, self._offset = self._segment + 1, 0
        self._writer = self._open(self._segment)

    def _delete_idle(self) -> None:
        """Delete the closed segments whose items are all settled."""
        for segment in self._idle - {self._segment}:
            if self._live.get(segment, 0) == 0:
                self._live.pop(segment, None)
                if segment in self._readers:
                    os.close(self._readers.pop(segment))
                self._path(segment).unlink(missing_ok=True)
        self._idle.clear()
