"""`dapo report`: one page of a run, or of two, that loads nothing and shows texts as text."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from services.cli.report.ages import group_ages, mean_lengths
from services.cli.report.dropping import fate_shares, pass_rates
from services.cli.report.groups import DROPPED, TRAINED, Group, lengths
from services.cli.report.head import facts
from services.cli.report.main import main
from services.cli.report.page import page
from services.cli.report.pipeline import counted, idle_share, sampled_rate, sentence
from services.cli.report.record import Record, read_record
from services.cli.report.texts import best, errors, first_held_out, texts_of, truncated, worst
from tests.run_folders import GROUPS, SIZE, START, make_run


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return read_record(make_run(tmp_path / "run"))


class Balanced(HTMLParser):
    """Counts open elements; fails for an end without a start."""

    EMPTY = ("meta", "path", "rect", "circle", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def test_a_group_is_joined_over_all_histories(record: Record) -> None:
    first, dropped = record.groups[0], record.groups[4]
    assert (first.issued, first.sampled, first.scored) == (START, START + 0.5, START + 0.7)
    assert (first.batched, first.trained) == (START + 1.0, START + 1.9)
    assert (first.step, first.fate, first.oldest, first.pass_rate) == (0, TRAINED, 0, 0.5)
    assert (first.sampling_s, first.scoring_s, first.replica) == (0.4, 0.1, "rollout-0")
    assert (dropped.fate, dropped.reason, dropped.lengths) == (DROPPED, "all_correct", [9] * SIZE)


def test_lengths_ages_and_pass_rates_are_those_of_the_groups(record: Record) -> None:
    assert len(lengths(record.groups)) == 12 * 6 * SIZE
    assert len(lengths(record.groups, TRAINED)) == 12 * GROUPS * SIZE
    assert group_ages(record.groups) == [0] * 12 * GROUPS
    # dropped groups have answers of 9 and 10 tokens
    assert mean_lengths(record.groups, lambda g: g.fate == DROPPED)[0] == (0, 9.5)
    early, late = pass_rates(record.groups)
    assert sorted(early[:6]) == [0, 0.25, 0.5, 0.5, 0.75, 1]
    assert len(early) == len(late) == 24
    assert fate_shares(record.groups)["all_wrong"][-1] == (11, pytest.approx(1 / 6))


def test_the_learners_idle_share_names_the_bottleneck(record: Record) -> None:
    # each step waits 0.6 s, trains 1.0 s and publishes 0.2 s
    assert idle_share(record) == pytest.approx(1 / 3)
    assert "waits for a rollout, and is sampled (median 0.5 s)" in sentence(record, [record], 0)


def test_groups_under_way_are_those_between_two_times(record: Record) -> None:
    points = counted([(START, START + 10), (START + 5, START + 10), (START, None)], record)
    at = dict(points)
    assert at[0.0] == 1.0
    assert max(at.values()) == 2.0
    assert points[-1][1] == 0.0
    # 6 groups of 4 in every 2 s
    rates = [rate for _, rate in sampled_rate(record, parts=11)]
    assert sum(rates) / len(rates) == pytest.approx(12 * 6 * SIZE / 22.0, rel=0.01)


def test_texts_are_chosen_by_reward_verdict_and_end(record: Record) -> None:
    texts = texts_of(record)
    assert [t.answer["text"] for t in best(texts)] == ["the answer is 0"] * 4
    assert {t.row["group"] for t in best(texts)} == {f"0/{k:06d}" for k in (8, 9, 10, 11)}
    assert {t.answer["text"] for t in worst(texts)} == {"the answer is 1"}
    assert {t.answer["text"] for t in truncated(texts)} == {"the answer is 2"}
    assert {t.answer["text"] for t in errors(texts)} == {"the answer is 3"}
    assert first_held_out(texts) == []


def test_the_tiles_state_the_numbers_of_the_run(record: Record) -> None:
    tiles = dict(facts(record))
    assert tiles["held-out accuracy"] == "0.250 → 0.750"
    assert tiles["steps"] == "12 of 12"
    assert tiles["token age"] == "mean 0.50, greatest 1 of 1"
    assert tiles["groups kept"] == "67%"


@pytest.mark.parametrize("number", [1, 2])
def test_the_page_is_whole_and_loads_nothing(tmp_path: Path, number: int) -> None:
    records = [read_record(make_run(tmp_path / name)) for name in ("one", "two")[:number]]
    text = page(records)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert all(address.startswith("#") for address in parser.addresses)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    for heading in ("Learning", "Throughput and bottleneck", "Ages", "Dynamic sampling", "Prompt sampling",
                    "Numerics of the learner", "Sample texts", "Configuration", "low keep rate"):  # fmt: skip
        assert heading in text


def test_what_a_model_wrote_is_shown_and_never_run(tmp_path: Path) -> None:
    evil = "<script>alert({})</script><img src=x onerror=alert(1)>"
    text = page([read_record(make_run(tmp_path / "run", text=evil))])
    assert "&lt;script&gt;alert(0)&lt;/script&gt;&lt;img src=x" in text
    assert "<script>alert" not in text
    assert "<img" not in text


def test_two_runs_are_told_apart_and_their_differences_shown(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "base" / "run", learner={"lr": 1e-6}),
        make_run(tmp_path / "new", learner={"lr": 2e-6}),
    ]
    assert main([str(folders[0]), str(folders[1]), "--out", str(tmp_path / "both.html")]) == 0
    text = (tmp_path / "both.html").read_text()
    assert "run, held-out" in text
    assert "new, held-out" in text
    assert "<td>learner.lr</td><td>1e-06</td><td>2e-06</td>" in text.split("The whole configuration")[0]


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=1)
    for name in ("metrics.jsonl", "evals.jsonl", "samples.jsonl", "sampling.jsonl", "stages.json"):
        (folder / name).unlink()
    for file in (folder / "history").iterdir():
        file.unlink()
    assert main([str(folder)]) == 0
    assert "No step has been trained yet" in (folder / "report.html").read_text()


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "is not a run folder (config.toml is missing)" in capsys.readouterr().err


def test_a_group_without_a_verdict_has_no_pass_rate() -> None:
    assert Group(id="0/1", errors=4).pass_rate is None
