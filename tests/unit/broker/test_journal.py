import sqlite3
from pathlib import Path

import pytest

from common.errors import UserError
from services.broker.journal import Durability, open_journal


def test_two_brokers_cannot_own_one_folder(tmp_path: Path) -> None:
    first = open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    with pytest.raises(UserError, match=r"in use by another broker: stop it or set another \[run\] name"):
        open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    first.close()
    open_journal(tmp_path, durability="process", segment_bytes=1 << 16).close()


@pytest.mark.parametrize(("durability", "level"), [("process", 0), ("full", 2)])
def test_full_durability_makes_sqlite_force_its_log_to_disk(tmp_path: Path, durability: Durability, level: int) -> None:
    journal = open_journal(tmp_path, durability=durability, segment_bytes=1 << 16)
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (level,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    journal.close()


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    journal.begin()
    journal.open_session("committed", "1")
    journal.commit()
    journal.begin()
    journal.open_session("torn", "1")
    journal.close()
    journal = open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    assert list(journal.load().sessions) == ["committed"]
    journal.close()


def test_others_may_read_while_the_broker_writes(tmp_path: Path) -> None:
    # `dapo audit` reads the queues of a live run
    journal = open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    journal.begin()
    journal.open_session("c", "1")
    reader = sqlite3.connect(f"file:{tmp_path / 'broker.db'}?mode=ro", uri=True)
    assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    journal.commit()
    assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    reader.close()
    journal.close()


def test_settlements_are_counted_by_queue_and_reason(tmp_path: Path) -> None:
    from common.protocol import Give
    from tests.unit.broker.turns import Broker

    broker = Broker(tmp_path)
    broker.give("a", "b", "c")
    broker.join("w", q=3)
    broker.say("w", Give(request=1, settles=[1, 2], reason="done"))
    broker.say("w", Give(request=2, settles=[3], reason="filtered:all_wrong"))
    rows = broker.journal._db.execute("SELECT queue, reason, count FROM settled ORDER BY reason")
    assert rows.fetchall() == [("q", "done", 2), ("q", "filtered:all_wrong", 1)]


def test_the_database_does_not_grow_with_what_was_settled(tmp_path: Path) -> None:
    from common.protocol import Give, Offer
    from tests.unit.broker.turns import Broker

    broker = Broker(tmp_path)
    broker.join("w", q=100)
    sizes = []
    for number in range(1, 31):
        offers = [Offer(queue="q", id=f"{number}/{n}" + "x" * 60, frames=0) for n in range(100)]
        broker.say("w", Give(request=2 * number, offers=offers))
        leases = list(range(100 * number - 99, 100 * number + 1))
        broker.say("w", Give(request=2 * number + 1, acked=2 * number, settles=leases))
        broker.journal.begin()
        broker.journal.tidy(last_seq=broker.core.ledger.last_seq, remember=500)
        broker.journal.commit()
        broker.journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes.append((tmp_path / "broker.db").stat().st_size)
    assert sizes[-1] < 1.2 * sizes[9]  # after twenty times as many again
    (remembered,) = broker.journal._db.execute("SELECT count(*) FROM given").fetchone()
    assert remembered == 500


def test_pages_that_are_free_go_back_to_the_disk(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, durability="process", segment_bytes=1 << 16)
    journal.begin()
    for number in range(20_000):
        journal._db.execute("INSERT INTO given VALUES (?,?,?)", (number, "q", f"{number:0100d}"))
    journal.commit()
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    large = (tmp_path / "broker.db").stat().st_size
    for _ in range(20):
        journal.begin()
        journal.tidy(last_seq=20_000, remember=0)
        journal.commit()
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    assert large > 4_000_000  # 20,000 ids of 100 bytes, and their index
    assert (tmp_path / "broker.db").stat().st_size <= 320 * 4096  # what may stay free, and what is in use
