import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config import RunConfig
from common.messages import Prompt, Sampling, Verdict
from services.filter.config import FilterConfig
from services.filter.evaluation import Evaluation, add, sampling, write_evals
from services.filter.passes import ks, pass_at
from services.filter.schema import Row
from services.filter.state import EvalTally
from tests.unit.filter.makers import make_rows, make_scored


def evaluation(tallies: dict[int, EvalTally] | None = None, *, rows: int = 2, every: int = 3) -> Evaluation:
    return Evaluation({} if tallies is None else tallies, rows=make_rows(rows), every=every, last=10)


def prompt(name: str, row: Row) -> Prompt:
    greedy = Sampling(n=1, temperature=0.0, max_tokens=8, seed=0)
    return Prompt(id=name, kind="eval", row=0, chat=list(row.chat), task=row.task, sampling=greedy, min_version=0)


def test_the_first_every_third_and_the_last_version_are_due() -> None:
    subject, asked = evaluation(), []
    for version in range(11):
        if subject.is_due(version):
            subject.start(version)
            asked.append(version)
    assert asked == [0, 3, 6, 9, 10]


def test_a_version_that_was_skipped_is_made_up_for() -> None:
    # two steps ended between two decisions: 3 was never the newest version, 4 stands in for it
    subject = evaluation({0: EvalTally(rows=2)})
    assert not subject.is_due(2)
    assert subject.is_due(4)
    subject.start(4)
    assert not subject.is_due(5)
    assert subject.is_due(6)


def test_without_a_period_only_the_first_and_the_last_version_are_due() -> None:
    subject = evaluation({0: EvalTally(rows=2)}, every=0)
    assert [version for version in range(11) if subject.is_due(version)] == [10]


def test_without_held_out_rows_nothing_is_due_and_nothing_is_waited_for() -> None:
    subject = evaluation(rows=0)
    assert not any(subject.is_due(version) for version in range(11))
    assert subject.is_complete(10)
    assert not subject.is_complete(9)


def test_a_tally_counts_the_right_the_failed_and_the_versions() -> None:
    tallies: dict[int, EvalTally] = {}
    subject = evaluation(tallies, rows=3)
    asked = subject.start(0)
    for (name, row), accuracies, versions in zip(asked, ((1,), (0,), (None,)), ((0,), (0, 1), (2,)), strict=True):
        subject.tally(make_scored(prompt(name, row), versions=versions, accuracies=accuracies))
    tally = tallies[0]
    assert (tally.correct, tally.errors, tally.accuracy, tally.finished) == (1, 1, 0.5, True)
    assert (tally.min_version, tally.max_version) == (0, 2)


def test_a_dead_held_out_prompt_is_not_waited_for_and_counts_once() -> None:
    tallies: dict[int, EvalTally] = {}
    subject = evaluation(tallies, rows=1)
    ((name, _),) = subject.start(10)
    assert not subject.is_complete(10)
    assert subject.give_up(name)
    assert not subject.give_up(name)
    assert subject.is_complete(10)


def test_an_answer_to_an_evaluation_that_nobody_opened_changes_nothing() -> None:
    subject = evaluation()
    subject.tally(make_scored(prompt("eval/7/000000", make_rows(1)[0]), versions=(7,), accuracies=(1,)))
    assert not subject.give_up("eval/7/000000")
    assert not subject.give_up("0/000001")


def test_evaluations_are_written_once_each_and_in_order_of_version(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    slow = EvalTally(rows=2, answered=1, judged=1)
    tallies = {10: slow, 20: EvalTally(rows=1, answered=1, judged=1, correct=1.0)}
    write_evals(path, tallies)
    assert [json.loads(line)["version"] for line in path.read_text().splitlines()] == [20]
    slow.answered = 2
    for _ in range(2):
        write_evals(path, tallies)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["version"], row["accuracy"]) for row in rows] == [(10, 0.0), (20, 1.0)]


def test_pass_at_k_by_hand() -> None:
    # 4 answers, 1 right: pass@1 = 1/4, pass@2 = 1 - C(3,2)/C(4,2) = 1/2, pass@4 = 1
    assert [pass_at(k, answers=4, right=1) for k in ks(4)] == pytest.approx([0.25, 0.5, 1.0])
    assert list(ks(6)) == [1, 2, 4, 6]
    assert list(ks(0)) == []


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_chance_that_k_drawn_answers_hold_a_right_one(case: tuple[int, int, int]) -> None:
    answers, right, k = case
    draws = list(itertools.combinations([1] * right + [0] * (answers - right), k))
    expected = sum(any(draw) for draw in draws) / len(draws)
    assert pass_at(k, answers=answers, right=right) == pytest.approx(expected)


def verdicts(*words: str) -> list[Verdict]:
    return [Verdict(verdict=word, score=float(word == "correct")) for word in words]  # type: ignore[arg-type]


def test_answers_without_a_verdict_count_for_nothing() -> None:
    tally = EvalTally(rows=2, samples=4)
    add(tally, verdicts("correct", "wrong", "error", "wrong"))  # 3 judged, 1 right
    add(tally, verdicts("error", "error", "error", "correct"))  # 1 judged, 1 right
    assert (tally.answered, tally.judged, tally.errors) == (2, 4, 4)
    assert tally.accuracy == pytest.approx(2 / 4)
    # pass@1: (1/3 + 1) / 2; pass@2: the first row alone, 1 - C(2,2)/C(3,2) = 2/3; pass@4: no row has four verdicts.
    # No pass@3 either, although the first row has three: it would be the figure of the rows with a failed verifier.
    assert tally.pass_rates == pytest.approx({1: (1 / 3 + 1) / 2, 2: 2 / 3})
    assert tally.ranked == {1: 2, 2: 1}


def test_an_evaluation_in_which_every_verifier_failed_is_no_accuracy_of_zero(tmp_path: Path) -> None:
    tally = EvalTally(rows=1, samples=2)
    add(tally, verdicts("error", "error"))
    write_evals(tmp_path / "evals.jsonl", {0: tally})
    (line,) = map(json.loads, (tmp_path / "evals.jsonl").read_text().splitlines())
    assert (line["accuracy"], line["avg@2"], line["errors"]) == (None, None, 2)
    assert "pass@1" not in line


def test_evaluations_record_avg_and_pass_at_k(tmp_path: Path) -> None:
    tally = EvalTally(rows=2, samples=2)
    add(tally, verdicts("correct", "wrong"))
    add(tally, verdicts("wrong", "wrong"))
    write_evals(tmp_path / "evals.jsonl", {3: tally})
    (line,) = map(json.loads, (tmp_path / "evals.jsonl").read_text().splitlines())
    # 1 of 4 answers is right; one of the two rows has a right answer among its two
    assert (line["accuracy"], line["avg@2"], line["samples"]) == (0.25, 0.25, 2)
    assert (line["pass@1"], line["pass@2"]) == (0.25, 0.5)


def test_rows_do_not_share_random_numbers_and_versions_do() -> None:
    run = RunConfig(name="r", model="none", temperature=0.7)
    config = FilterConfig(data="none", eval_samples=4)
    first, second = (sampling(run, config, place) for place in range(2))
    assert first.seed != second.seed
    assert first == sampling(run, config, 0)  # no version in it
    assert (first.n, first.temperature) == (4, 0.7)
    assert sampling(run, FilterConfig(data="none"), 0).temperature == 0.0  # one answer: greedy
