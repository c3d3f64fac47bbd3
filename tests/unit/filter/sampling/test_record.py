import json
from pathlib import Path

from services.filter.sampling.record import Record, line
from services.filter.sampling.stages import schedule
from services.filter.sampling.state import Monitored, SamplerState, Tally


def lines(*steps: int) -> list[bytes]:
    return [json.dumps({"step": step}).encode() for step in steps]


def steps(path: Path) -> list[int]:
    return [json.loads(text)["step"] for text in path.read_text().splitlines()]


def test_a_line_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "sampling.jsonl"
    record = Record(path)
    record.append(lines(0))
    record.append(lines(0, 1))
    Record(path).append(lines(1, 2))
    assert steps(path) == [0, 1, 2]


def test_a_torn_line_is_cut_off_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "sampling.jsonl"
    for whole in (b"", lines(0)[0] + b"\n"):
        path.write_bytes(whole + lines(1)[0][:5])
        Record(path).append(lines(0, 1))
        assert steps(path) == [0, 1]


def test_nothing_is_written_for_samplers_that_only_count(tmp_path: Path) -> None:
    Record(tmp_path / "sampling.jsonl").append([])
    assert not (tmp_path / "sampling.jsonl").exists()


def test_a_line_holds_probability_draws_kept_and_pass_rate_of_every_category() -> None:
    state = SamplerState(
        table={"a": 0.7, "b": 0.3}, monitored={"a": Monitored(), "b": Monitored()},
        tallies={"a": Tally(draws=5, judged=4, kept=3, attempts=32, successes=8.0), "b": Tally()},
    )  # fmt: skip
    row = json.loads(line(30, schedule("article", num_rows=10, steps=100), state))
    assert (row["step"], row["stage"], row["temperature"], row["least_share"]) == (30, "exploit", 0.25, 0.005)
    a, b = row["categories"]["a"], row["categories"]["b"]
    assert (a["probability"], a["draws"], a["judged"], a["kept"], a["pass_rate"]) == (0.7, 5, 4, 3, 0.25)
    assert b["pass_rate"] is None
