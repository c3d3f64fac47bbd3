"""What survives the broker: metadata in SQLite, payload frames in segment files beside it (segments.py).

    RUN/broker.db   items, leases, sessions, registers, ids ever given, answered requests, settle counts
    RUN/broker/     the segments, and `lock`, held by the one broker that owns the folder

Every change of one turn of the loop is one SQLite transaction; of a turn that the disk has no room for nothing remains.
Payload bytes are with the kernel before the transaction commits; `full` durability forces both to disk first. With
`process` durability a power cut may lose or damage the queues: nothing is forced to disk then. The file is as large as
what is unsettled and the ids that are remembered, so that one given twice has no effect.
"""

import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from common.disk import full_message, is_full
from common.errors import UserError
from services.broker.segments import Segments
from services.broker.state import Item, Place, Register, Session

Durability = Literal["process", "full"]

NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE)
WAL_BYTES = 16 << 20
"""Length to which SQLite's log is cut when it has been copied into the database."""
FREE_PAGES, PAGES_AT_A_TIME = 256, 64
"""Pages of 4 kB without content that the database may have, and how many of the others are returned at a time."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS items (
    seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, id TEXT NOT NULL, segment INTEGER NOT NULL, offset INTEGER NOT NULL,
    lengths BLOB NOT NULL, given_at REAL NOT NULL, deliveries INTEGER NOT NULL, holders BLOB NOT NULL,
    dead INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS given (seq INTEGER PRIMARY KEY, queue TEXT NOT NULL, id TEXT NOT NULL, UNIQUE (queue, id));
CREATE TABLE IF NOT EXISTS leases (lease INTEGER PRIMARY KEY, seq INTEGER NOT NULL, session TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (name TEXT PRIMARY KEY, incarnation TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS superseded (
    name TEXT NOT NULL, incarnation TEXT NOT NULL, PRIMARY KEY (name, incarnation)) WITHOUT ROWID;
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
    sessions: dict[str, Session]
    registers: dict[str, Register]
    last_seq: int
    last_lease: int


def open_journal(run_folder: Path, *, durability: Durability, segment_bytes: int) -> "Journal":
    """The journal of a run folder; raises `UserError` if another broker owns it or its disk is full."""
    (run_folder / "broker").mkdir(parents=True, exist_ok=True)
    lock = _lock(run_folder)
    try:
        segments = Segments(run_folder / "broker", segment_bytes=segment_bytes, sync=durability == "full")
        return Journal(str(run_folder / "broker.db"), segments, durability=durability, lock=lock)
    except (OSError, sqlite3.OperationalError) as error:
        os.close(lock)
        if has_no_room(error):
            raise UserError(full_message(run_folder)) from error
        raise


def _lock(run_folder: Path) -> int:
    """The lock of a run folder, held until the handle is closed or the process dies."""
    handle = os.open(run_folder / "broker" / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise UserError(
            f"the queues of run folder {run_folder} are in use by another broker: stop it or set another [run] name"
        ) from None
    return handle


def has_no_room(error: Exception) -> bool:
    """Whether the disk is full, in SQLite's words or the kernel's."""
    return is_full(error) or (
        isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) in NO_ROOM
    )


class Journal:
    """The broker's disk. Not thread-safe: the loop that owns the core owns it."""

    def __init__(self, database: str, segments: Segments, *, durability: Durability, lock: int | None = None) -> None:
        self.segments = segments
        self._lock = lock
        self._counters: dict[str, int] = {}
        """Counters that changed in this turn."""
        self._db = sqlite3.connect(database, isolation_level=None)
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # before the first table is made
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durability == 'full' else 'OFF'}")
        self._db.executescript(SCHEMA)

    def load(self) -> Loaded:
        """Everything that was committed; removes segments that nothing needs."""
        counters = dict(self._db.execute("SELECT name, value FROM counters"))
        registers = self._db.execute("SELECT name, version, value FROM registers")
        return Loaded(
            items=self._load_items(),
            leases=list(self._db.execute("SELECT lease, seq, session FROM leases ORDER BY lease")),
            sessions=self._load_sessions(),
            registers={name: Register(version, value) for name, version, value in registers},
            last_seq=counters.get("seq", 0),
            last_lease=counters.get("lease", 0),
        )

    def _load_items(self) -> list[tuple[Item, bool]]:
        items = []
        for row in self._db.execute("SELECT * FROM items ORDER BY seq"):
            seq, queue, name, segment, offset, lengths, given_at, deliveries, holders, dead = row
            place = Place(segment, offset, msgspec.msgpack.decode(lengths, type=tuple[int, ...]))
            item = Item(seq, queue, name, place, given_at, deliveries, msgspec.msgpack.decode(holders, type=list[str]))
            items.append((item, bool(dead)))
            self.segments.hold(place)
        self.segments.sweep()
        return items

    def _load_sessions(self) -> dict[str, Session]:
        rows = self._db.execute("SELECT name, incarnation FROM sessions")
        sessions = {name: Session(name, incarnation) for name, incarnation in rows}
        for name, request in self._db.execute("SELECT name, request FROM done"):
            sessions[name].done.add(request)
        return sessions

    def begin(self) -> None:
        """Start the transaction of a turn."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the turn durable."""
        self._db.executemany("INSERT OR REPLACE INTO counters VALUES (?,?)", self._counters.items())
        self._counters.clear()
        self.segments.flush()
        self._db.execute("COMMIT")
        self.segments.sweep()

    def rollback(self) -> None:
        """Forget this turn; `load` then finds what was committed. Needs no room on the disk."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._counters.clear()
        self.segments.rollback()

    def tidy(self, *, last_seq: int, remember: int) -> None:
        """Keep the file small: forget all but the last `remember` ids that were given, return pages to the disk."""
        self._db.execute("DELETE FROM given WHERE seq<=?", (last_seq - remember,))
        (num_free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if num_free > FREE_PAGES:
            for _ in range(PAGES_AT_A_TIME):
                self._db.execute("PRAGMA incremental_vacuum(1)")

    def was_given(self, queue: str, name: str) -> bool:
        """Whether an item of this id is among those that were given to the queue and are remembered."""
        return self._db.execute("SELECT 1 FROM given WHERE queue=? AND id=?", (queue, name)).fetchone() is not None

    def add(self, item: Item) -> None:
        """A new item."""
        self.segments.hold(item.place)
        self._db.execute(
            "INSERT INTO items VALUES (?,?,?,?,?,?,?,?,?,0)",
            (item.seq, item.queue, item.id, item.place.segment, item.place.offset,
             msgspec.msgpack.encode(item.place.lengths), item.given_at, 0, msgspec.msgpack.encode([])),
        )  # fmt: skip
        self._db.execute("INSERT INTO given VALUES (?,?,?)", (item.seq, item.queue, item.id))
        self._counters["seq"] = item.seq

    def lend(self, number: int, item: Item, session: str) -> None:
        """An item was delivered."""
        self._db.execute("INSERT INTO leases VALUES (?,?,?)", (number, item.seq, session))
        self._update_deliveries(item)
        self._counters["lease"] = number

    def take_back(self, number: int, item: Item) -> None:
        """A lease ended without a settlement."""
        self._db.execute("DELETE FROM leases WHERE lease=?", (number,))
        self._update_deliveries(item)

    def settle(self, number: int, item: Item, reason: str) -> None:
        """A leased item is finished; its payload is free."""
        self._db.execute("DELETE FROM leases WHERE lease=?", (number,))
        self.remove(item, reason)

    def remove(self, item: Item, reason: str) -> None:
        """An item that nobody holds is finished."""
        self._db.execute("DELETE FROM items WHERE seq=?", (item.seq,))
        self._db.execute(
            "INSERT INTO settled VALUES (?,?,1) ON CONFLICT DO UPDATE SET count=count+1", (item.queue, reason)
        )
        self.segments.free(item.place)

    def bury(self, item: Item) -> None:
        """An item is a dead letter."""
        self._db.execute("UPDATE items SET dead=1 WHERE seq=?", (item.seq,))

    def revive(self, item: Item) -> None:
        """A dead letter is an item again."""
        self._db.execute("UPDATE items SET dead=0 WHERE seq=?", (item.seq,))
        self._update_deliveries(item)

    def open_session(self, name: str, incarnation: str) -> None:
        """A client that was not known, or a new incarnation of one."""
        self._db.execute("INSERT INTO sessions VALUES (?,?)", (name, incarnation))

    def close_session(self, name: str) -> None:
        """A client that will not come back."""
        self._db.execute("DELETE FROM sessions WHERE name=?", (name,))
        self._db.execute("DELETE FROM done WHERE name=?", (name,))

    def supersede(self, name: str, incarnation: str) -> None:
        """An incarnation whose place another one has taken."""
        self._db.execute("INSERT INTO superseded VALUES (?,?)", (name, incarnation))

    def is_superseded(self, name: str, incarnation: str) -> bool:
        """Whether another incarnation has taken the place of this one."""
        row = self._db.execute("SELECT 1 FROM superseded WHERE name=? AND incarnation=?", (name, incarnation))
        return row.fetchone() is not None

    def write_register(self, name: str, register: Register) -> None:
        """A register's new value."""
        self._db.execute("INSERT OR REPLACE INTO registers VALUES (?,?,?)", (name, register.version, register.value))

    def mark_done(self, name: str, request: int, acked: int) -> None:
        """Remember a committed request; forget those that the client has seen answered."""
        self._db.execute("DELETE FROM done WHERE name=? AND request<=?", (name, acked))
        self._db.execute("INSERT INTO done VALUES (?,?)", (name, request))

    def close(self) -> None:
        """Close all files."""
        self._db.close()
        self.segments.close()
        if self._lock is not None:
            os.close(self._lock)

    def _update_deliveries(self, item: Item) -> None:
        self._db.execute(
            "UPDATE items SET deliveries=?, holders=? WHERE seq=?",
            (item.deliveries, msgspec.msgpack.encode(item.holders), item.seq),
        )
