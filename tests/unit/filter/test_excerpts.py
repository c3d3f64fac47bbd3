"""The texts that are kept for people to read: bounded, and of every kind."""

import json
from pathlib import Path
from typing import Any

import msgspec

from common.messages import ChatMessage, Prompt, Sampling, Scored, Task
from services.filter.excerpts import MAX_CHARACTERS, PERIODS, Excerpts, chosen, clipped
from tests.unit.filter.makers import make_scored


def scored(name: str = "0/000001", *, kind: Any = "train", cut: int | None = None, **keys: Any) -> Scored:
    """A group; `cut` is the place of an answer that was cut."""
    prompt = Prompt(
        id=name, kind=kind, row=1, chat=[ChatMessage(role="user", content="1+1=?")],
        task=Task(verifier="math", gold="2", data_source="sums"), min_version=0,
        sampling=Sampling(n=2, temperature=1.0, max_tokens=4, seed=0),
    )  # fmt: skip
    group = make_scored(prompt, versions=[0, 1], **keys)
    if cut is None:
        return group
    samples = list(group.group.samples)
    samples[cut] = msgspec.structs.replace(samples[cut], finish="length")
    return msgspec.structs.replace(group, group=msgspec.structs.replace(group.group, samples=samples))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_trained_group_is_kept_with_its_best_and_its_worst_answer(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    Excerpts(path, steps=10, quota=1).offer(scored(accuracies=(0.5, 1, 0)), step=3, reason=None)
    (row,) = rows(path)
    assert (row["step"], row["kind"], row["prompt"], row["gold"], row["source"]) == (3, "trained", "1+1=?", "2", "sums")
    # rewards 2 a - 1: 0, 1, -1
    assert [(a["verdict"], a["reward"], a["versions"]) for a in row["answers"]] == [
        ("correct", 1.0, [0, 1]), ("wrong", -1.0, [0, 1]),
    ]  # fmt: skip
    assert (row["num_answers"], row["num_correct"]) == (3, 2)


def test_an_answer_that_was_cut_and_one_without_a_verdict_are_chosen_too() -> None:
    assert chosen(scored(accuracies=(1, 0, 0, None), cut=2)) == [0, 1, 2, 3]
    assert chosen(scored(accuracies=(None, None))) == [0]


def test_of_every_kind_and_period_only_so_many_groups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    excerpts = Excerpts(path, steps=4 * PERIODS, quota=2)
    for step in range(4 * PERIODS):
        for _ in range(5):
            excerpts.offer(scored(), step=step, reason=None)
            excerpts.offer(scored(accuracies=(1, 1)), step=step, reason="all_correct")
    kept = rows(path)
    assert len(kept) == PERIODS * 2 * 2
    assert {(row["kind"], row["reason"]) for row in kept} == {("trained", ""), ("dropped", "all_correct")}
    assert sum(row["step"] // 4 == 7 for row in kept) == 4


def test_a_restarted_filter_goes_on_counting_and_cuts_a_torn_line_off(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    Excerpts(path, steps=10, quota=1).offer(scored(), step=0, reason=None)
    with path.open("a") as file:
        file.write('{"step": 0, "ki')
    again = Excerpts(path, steps=10, quota=1)
    again.offer(scored("0/000002"), step=0, reason=None)
    again.offer(scored("0/000003"), step=1, reason=None)
    assert [row["group"] for row in rows(path)] == ["0/000001", "0/000003"]


def test_rare_kinds_come_before_common_ones(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    excerpts = Excerpts(path, steps=10, quota=1)
    for _ in range(3):
        excerpts.offer(scored(accuracies=(1, 0, None), cut=0), step=0, reason=None)
    excerpts.offer(scored(kind="eval", accuracies=(1,)), step=0, reason="too_few_survivors")
    assert [row["kind"] for row in rows(path)] == ["error", "truncated", "trained", "held-out"]
    assert rows(path)[-1]["reason"] == ""  # nobody dropped it


def test_no_file_where_none_is_wanted(tmp_path: Path) -> None:
    Excerpts(tmp_path / "samples.jsonl", steps=10, quota=0).offer(scored(), step=0, reason=None)
    assert not (tmp_path / "samples.jsonl").exists()


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "a" * MAX_CHARACTERS + "z" * MAX_CHARACTERS
    short = clipped(text)
    assert short.startswith("aaa")
    assert short.endswith("zzz")
    assert f"[... {MAX_CHARACTERS} characters left out ...]" in short
    assert clipped("short") == "short"
