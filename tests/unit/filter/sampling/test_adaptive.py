"""The sampler as the planner uses it, among answers that a simulated policy gives."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.messages import ChatMessage, Feedback, GroupFeedback, Prompt, Sampling, Scored, Task
from services.filter.sampling.adaptive import AdaptiveSampler
from services.filter.sampling.stages import schedule
from services.filter.sampling.state import SamplerState
from tests.unit.filter.makers import make_scored

G = 8


def make_sampler(
    state: SamplerState, categories: Sequence[str], *, file: bytes = b"", steps: int = 100, **options: Any
) -> AdaptiveSampler:
    plan = schedule(options.pop("preset", "small"), num_rows=len(categories), steps=steps)
    defaults = {"scores": "signal", "weights": {}, "group_size": G, "seed": 0}
    return AdaptiveSampler(state, categories=categories, schedule=plan, file=file, **(defaults | options))


def scored(group: str, accuracies: Sequence[float | None]) -> Scored:
    prompt = Prompt(
        id=group, row=0, chat=[ChatMessage(role="user", content="?")], task=Task(verifier="math", gold="1"),
        sampling=Sampling(n=G, temperature=1.0, max_tokens=9, seed=0), min_version=0,
    )  # fmt: skip
    return make_scored(prompt, versions=[0], accuracies=accuracies)


class Play:
    """A policy that answers row r right with chance `rates[r]`, and a filter that may die after any step."""

    def __init__(self, rates: Sequence[float], categories: Sequence[str], *, batch: int = 8, **options: Any) -> None:
        self.rates, self.categories, self.batch, self.options = rates, categories, batch, options
        self.state, self.files = SamplerState(), {"": b""}
        self.register = msgspec.msgpack.encode(self.state)
        self.rows: list[int] = []
        self.kept: list[bool] = []
        self.record: list[dict[str, Any]] = []
        self.die()

    def die(self) -> None:
        """A new process, which knows the register and the file that it names."""
        self.state = msgspec.msgpack.decode(self.register, type=SamplerState)
        self.sampler = make_sampler(self.state, self.categories, file=self.files[self.state.file], **self.options)
        self.write_record()

    def write_record(self) -> None:
        """As record.Record does: what is there is not written again."""
        lines = [json.loads(line) for line in self.state.finished]
        self.record += [line for line in lines if line["step"] >= len(self.record)]
        self.state.finished.clear()

    def commit(self) -> None:
        if (file := self.sampler.file()) is not None:
            self.files[file[0]] = file[1]
        self.register = msgspec.msgpack.encode(self.state)
        self.write_record()

    def step(self, number: int) -> None:
        """Draw a batch, judge it, train on what is kept."""
        first = number * self.batch
        groups = [self.sampler.id(ordinal) for ordinal in range(first, first + self.batch)]
        for group in groups:
            row = self.sampler.row(self.sampler.ordinal(group))
            self.rows.append(row)
            rng = random.Random(f"{group}:{row}")
            accuracies = [float(rng.random() < self.rates[row]) for _ in range(G)]
            self.kept.append(0 < sum(accuracies) < G)
            self.sampler.judged(group, scored(group, accuracies), kept=self.kept[-1], version=number)
            self.sampler.batched(group, number % 2)
        shown = [GroupFeedback(id=group, gradient_variance=1.0, clip_share=0.0, mean_rho=1.0) for group in groups]
        self.sampler.trained(Feedback(step=number, version=number + 1, groups=shown))
        for group in groups:
            self.sampler.ended(group)


def play(play: Play, steps: int, *, deaths: Sequence[int] = ()) -> Play:
    for number in range(steps):
        play.step(number)
        play.commit()
        if number in deaths:
            play.die()
    return play


THIRDS = ["easy"] * 100 + ["medium"] * 100 + ["hopeless"] * 100
RATES = [1.0] * 100 + [0.5] * 100 + [0.0] * 100


@given(st.lists(st.integers(0, 24), max_size=6), st.sampled_from(["signal", "gradient_variance", "weights"]))
def test_a_sampler_killed_anywhere_draws_what_one_left_alone_does(deaths: list[int], scores: str) -> None:
    # 25 steps of 8 prompts over 30 rows: epochs, files (every 64 changes) and stages all turn over on the way
    options = {"scores": scores, "weights": {"a": 1.0, "b": 2.0}, "steps": 25, "rest_epochs": 1}
    rates, categories = [n / 29 for n in range(30)], ["a", "b"] * 15
    left_alone = play(Play(rates, categories, **options), 25)
    killed = play(Play(rates, categories, **options), 25, deaths=deaths)
    assert killed.rows == left_alone.rows
    assert killed.register == left_alone.register
    assert killed.record == left_alone.record


class Forgetful(Play):
    """The register lacks what is out: a dead filter's prompts may be drawn again at once."""

    def commit(self) -> None:
        super().commit()
        self.register = msgspec.msgpack.encode(msgspec.structs.replace(self.state, drawn={}, overlay={}))


def test_a_register_that_lacks_something_is_caught() -> None:
    options = {"steps": 25, "rates": [n / 29 for n in range(30)], "categories": ["a", "b"] * 15}
    left_alone, killed = play(Play(**options), 25), play(Forgetful(**options), 25, deaths=[12])  # type: ignore[arg-type]
    assert killed.rows != left_alone.rows


def test_what_was_not_committed_never_was() -> None:
    subject, twin = (Play(RATES, THIRDS) for _ in range(2))
    for either in (subject, twin):
        play(either, 10)
    subject.step(10)  # dies before its commit
    del subject.rows[80:], subject.kept[80:]
    subject.die()
    for either in (subject, twin):
        either.step(10)
        either.commit()
    assert (subject.rows, subject.register) == (twin.rows, twin.register)


def test_the_draws_go_where_groups_are_kept() -> None:
    subject = play(Play(RATES, THIRDS, visit_all=False, steps=60), 60)
    last = Counter(THIRDS[row] for row in subject.rows[-240:])
    assert last["medium"] > 0.9 * 240
    uniform = 1 / 3  # the share of medium rows, and so the keep rate of plain DAPO
    assert sum(subject.kept[-240:]) / 240 > 2.5 * uniform


def test_inside_a_category_the_prompts_that_teach_are_found() -> None:
    # one category, one row in ten teaches
    rates = [0.5 if row % 10 == 0 else 0.0 for row in range(200)]
    subject = play(Play(rates, ["all"] * 200, visit_all=False), 100)
    assert sum(subject.kept[400:]) / 400 > 0.4  # 0.1 by uniform draws


@pytest.mark.parametrize("scores", ["signal", "high_gradient_variance"])
def test_every_prompt_is_visited_in_every_epoch(scores: str) -> None:
    subject = play(Play(RATES, THIRDS, scores=scores), 300)  # 2400 draws, epochs of 4 * 300 = 1200
    for epoch in range(2):
        assert set(subject.rows[epoch * 1200 : (epoch + 1) * 1200]) == set(range(300))


def test_a_solved_prompt_rests_for_whole_epochs_if_asked_to_and_returns() -> None:
    subject = play(Play([1.0] * 5 + [0.5] * 5, ["all"] * 10, batch=4, rest_epochs=1), 40)  # epochs of 40 draws
    seen = [Counter(subject.rows[40 * epoch : 40 * (epoch + 1)]) for epoch in range(4)]
    assert [sum(counts[row] for row in range(5)) for counts in seen] == [5, 0, 5, 0]


def test_no_prompt_is_out_twice_while_others_are_in() -> None:
    sampler = make_sampler(SamplerState(), ["all"] * 20)
    rows = [sampler.row(n) for n in range(20)]
    assert len(set(rows)) == 20
    assert sampler.row(20) in range(20)  # all are out: any


def test_a_reissued_prompt_is_the_same_row_until_it_ends() -> None:
    sampler = make_sampler(SamplerState(), ["all"] * 20)
    row = sampler.row(3)
    assert sampler.row(sampler.ordinal(f"{sampler.id(3)}~2")) == row
    sampler.ended(f"{sampler.id(3)}~2")
    assert sampler.state.drawn == {}
    sampler.ended(sampler.id(3))  # said twice


def test_the_table_is_made_anew_every_period_and_when_a_stage_begins() -> None:
    subject = play(Play([0.2] * 100 + [0.5] * 100 + [0.9] * 100, THIRDS, steps=100), 100)  # period 100 // 20 = 5
    tables = [[c["probability"] for c in row["categories"].values()] for row in subject.record]
    changed = [step for step in range(1, 100) if tables[step] != tables[step - 1]]
    assert changed == list(range(5, 100, 5))
    assert [row["stage"] for row in subject.record[::20]] == ["explore", *["exploit"] * 3, "settle"]


def test_no_category_is_forgotten() -> None:
    subject = play(Play(RATES, THIRDS, preset="article"), 100)
    assert min(c["probability"] for row in subject.record for c in row["categories"].values()) >= 0.01 / 3 * 0.999999


def test_the_record_accounts_for_every_draw() -> None:
    subject = play(Play(RATES, THIRDS), 50, deaths=[3, 20, 21])
    assert [row["step"] for row in subject.record] == list(range(50))
    categories = [row["categories"] for row in subject.record]
    for name in ("easy", "medium", "hopeless"):
        mine = [kept for kept, row in zip(subject.kept, subject.rows, strict=True) if THIRDS[row] == name]
        assert sum(c[name]["draws"] for c in categories) == len(mine)
        assert sum(c[name]["kept"] for c in categories) == sum(mine)
    assert categories[-1]["easy"]["mean_pass_rate"] == pytest.approx(1.0)
    assert categories[-1]["medium"]["mean_age"] == pytest.approx(0.5, abs=0.2)


def test_a_prompt_without_a_verdict_keeps_what_was_known_of_it() -> None:
    sampler = make_sampler(SamplerState(), ["all"] * 3)
    row = sampler.row(0)
    sampler.judged(sampler.id(0), scored(sampler.id(0), [None] * G), kept=False, version=0)
    assert sampler._prompts.evidence(row).attempts == 0
    assert sampler.state.tallies["all"].judged == 1


def test_feedback_of_a_group_that_is_not_out_is_passed_over() -> None:
    sampler = make_sampler(SamplerState(), ["all"] * 3)
    stray = GroupFeedback(id="0/000001", gradient_variance=1.0, clip_share=0.0, mean_rho=1.0)
    sampler.trained(Feedback(step=0, version=1, groups=[stray]))
    assert sampler.state.monitored["all"].gradient_variance.value is None


def test_the_register_stays_small_however_many_prompts_there_are() -> None:
    subject = play(Play([0.5] * 100_000, ["a", "b"] * 50_000, batch=32), 40)
    # between two files at most sqrt(1.3 * 100,000) = 360 prompts change, and one batch
    assert len(subject.state.overlay) <= 360 + 2 * 32
    assert len(subject.register) < 20_000
