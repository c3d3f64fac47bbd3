import os
from pathlib import Path

import pytest

from common.protocol import Done, Give, Offer, Take
from services.broker import segments as module
from services.broker.segments import Segments
from tests.unit.broker.turns import Broker


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.segment"))


def open_segments(folder: Path, *, segment_bytes: int = 10, sync: bool = False) -> Segments:
    return Segments(folder, segment_bytes=segment_bytes, sync=sync)


@pytest.mark.parametrize("frames", [[], [b""], [b"abc"], [b"ab", b"", b"c" * 100]])
def test_frames_come_back_as_they_were_written(tmp_path: Path, frames: list[bytes]) -> None:
    segments = open_segments(tmp_path)
    segments.write([b"before"])
    place = segments.write(frames)
    segments.write([b"after"])
    assert segments.read(place) == frames


def test_a_segment_is_deleted_when_its_last_item_is_freed_and_the_turn_is_committed(tmp_path: Path) -> None:
    segments = open_segments(tmp_path)
    places = [segments.write([b"12345"]) for _ in range(4)]  # two in each segment of 10 bytes
    for place in places:
        segments.hold(place)
    assert [place.segment for place in places] == [1, 1, 2, 2]
    segments.free(places[0])
    segments.sweep()
    assert names(tmp_path) == ["000001.segment", "000002.segment"]
    segments.read(places[1])
    segments.free(places[1])
    assert names(tmp_path) == ["000001.segment", "000002.segment"]  # a crash now would bring the item back
    segments.sweep()
    assert names(tmp_path) == ["000002.segment"]
    assert segments.read(places[3]) == [b"12345"]


def test_the_segment_in_use_is_never_deleted(tmp_path: Path) -> None:
    segments = open_segments(tmp_path)
    place = segments.write([b"123"])
    segments.hold(place)
    segments.free(place)
    segments.sweep()
    again = segments.write([b"456"])
    assert segments.read(again) == [b"456"]
    assert names(tmp_path) == ["000001.segment"]


def test_a_segment_that_fills_without_users_goes_too(tmp_path: Path) -> None:
    segments = open_segments(tmp_path)
    for _ in range(5):
        place = segments.write([b"x" * 10])
        segments.hold(place)
        segments.free(place)
        segments.sweep()
    assert len(names(tmp_path)) <= 2


def test_a_torn_tail_does_no_harm(tmp_path: Path) -> None:
    # the broker was killed after writing half of the second payload and before the commit
    broker = Broker(tmp_path)
    broker.join("c")
    broker.say("c", Give(request=1, offers=[Offer(queue="q", id="a", frames=1)]), b"first")
    broker.journal.segments.write([b"hal"])
    broker.restart()
    broker.join("c", incarnation="2")
    give = Give(request=1, offers=[Offer(queue="q", id="b", frames=1)])
    assert broker.say("c", give, b"second") == [Done(request=1)]
    items = broker.core.ledger.queue("q").items.values()
    assert [broker.journal.segments.read(item.place) for item in items] == [[b"first"], [b"second"]]


def test_a_restarted_broker_deletes_what_nothing_needs(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.give("a")
    for _ in range(5):
        broker.restart()
    assert names(tmp_path / "broker") == ["000001.segment", "000006.segment"]
    broker.join("c", q=1)
    broker.say("c", Give(request=1, settles=[1]))
    assert names(tmp_path / "broker") == ["000006.segment"]


def test_the_disk_stays_as_small_as_what_is_unsettled(tmp_path: Path) -> None:
    broker = Broker(tmp_path)  # segments of 64 KiB
    broker.join("c", q=1)
    for n in range(1, 60):
        broker.say("c", Give(request=n, offers=[Offer(queue="q", id=str(n), frames=1)]), b"x" * 10_000)
    broker.say("c", Take(queue="q", window=59))
    broker.say("c", Give(request=60, settles=list(range(1, 59))))
    assert len(names(tmp_path / "broker")) <= 2  # the one in use and that of the last item


def test_full_durability_forces_payload_and_names_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda handle: forced.append("payload"))
    monkeypatch.setattr(module, "fsync", lambda path: forced.append("folder"))
    segments = open_segments(tmp_path, sync=True)
    segments.write([b"x" * 10])
    segments.flush()
    segments.write([b"y"])  # begins a segment: the last one is forced before it is closed
    segments.flush()
    assert forced == ["folder", "payload", "payload", "folder", "payload"]
