import random

import numpy as np
import pytest

from common.codec import Arrays
from common.messages import Batch, ChatMessage, Group, Prompt, Sample, Sampling, Scored, Span, Task, Verdict
from services.learner.report import batch_metrics
from services.learner.samples import StaleTokenError, TrainSample, train_samples

EOS = PAD = 2


def scored(
    group: str, rewards: list[float | None], tokens: list[list[int]], *, spans: list[list[Span]] | None = None,
    finish: str = "stop",
) -> tuple[Scored, Arrays]:  # fmt: skip
    """A group whose samples have the given rewards (None: the verifier failed) and tokens."""
    prompt = Prompt(
        id=group, row=0, chat=[ChatMessage(role="user", content="?")], task=Task(verifier="math", gold="1"),
        sampling=Sampling(n=len(rewards), temperature=1.0, max_tokens=16, seed=0), min_version=0,
    )  # fmt: skip
    spans = spans or [[Span(version=5, start=0, end=len(ids))] for ids in tokens]
    samples = [
        Sample(num_tokens=len(ids), finish=finish, spans=s, text="")  # type: ignore[arg-type]
        for ids, s in zip(tokens, spans, strict=True)
    ]
    verdicts = [
        Verdict(verdict="error") if r is None else Verdict(verdict="correct" if r > 0 else "wrong", score=float(r > 0))
        for r in rewards
    ]
    terms = [{} if r is None else {"task": r} for r in rewards]
    flat = np.array([token for ids in tokens for token in ids], dtype=np.int32)
    arrays = Arrays(np.array([7, 8], dtype=np.int32), flat, np.full(len(flat), -1.0, dtype=np.float32))
    return Scored(group=Group(prompt=prompt, samples=samples), verdicts=verdicts, terms=terms), arrays


def samples_of(
    *groups: tuple[Scored, Arrays], step: int = 5, max_staleness: int = 1, mask_stale: bool = False,
    overlong_filter: bool = False,
) -> list[TrainSample]:  # fmt: skip
    batch = Batch(step=step, groups=[g for g, _ in groups], totals={})
    return train_samples(
        batch, [a for _, a in groups], advantage="std", max_staleness=max_staleness, mask_stale=mask_stale,
        overlong_filter=overlong_filter,
    )  # fmt: skip


def test_advantages_belong_to_the_group_whatever_the_order_of_arrival() -> None:
    groups = [scored(f"0/{i}", [1.0, 3.0 + i], [[4, EOS], [5, EOS]]) for i in range(6)]
    reference = {(s.group, tuple(s.response_T)): s.advantage for s in samples_of(*groups)}
    for seed in range(20):
        order = random.Random(seed).sample(range(6), 6)
        for sample in samples_of(*[groups[place] for place in order]):
            assert reference[order[sample.group], tuple(sample.response_T)] == sample.advantage


def test_the_final_stop_token_is_trained_even_when_padding_has_its_id() -> None:
    # three rows of the reference: lengths 3, 5 and 1 with stop id = pad id = 2
    rows = [[10, 11, EOS], [12, 13, 14, 15, 16], [EOS]]
    samples = samples_of(scored("0/0", [1.0, -1.0, -1.0], rows))
    assert [sample.mask_T.tolist() for sample in samples] == [[True] * 3, [True] * 5, [True]]
    assert [sample.response_T.tolist() for sample in samples] == rows


def test_an_error_is_left_out_and_the_survivors_are_compared_with_each_other() -> None:
    samples = samples_of(scored("0/0", [1.0, None, 3.0], [[4], [5], [6]]))
    assert [sample.response_T.tolist() for sample in samples] == [[4], [6]]
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 1.0], abs=1e-5)


def mixed_versions() -> tuple[Scored, Arrays]:
    # the reference: tokens 0..56 of version 7, tokens 57..127 of version 8
    spans = [[Span(version=7, start=0, end=57), Span(version=8, start=57, end=128)]] * 2
    return scored("0/0", [1.0, -1.0], [[4] * 128, [5] * 128], spans=spans)


def test_the_age_of_a_response_is_that_of_its_oldest_token() -> None:
    # the learner is at version 9, so the oldest token is 2 versions old: bound 1 refuses it, bound 2 trains it
    with pytest.raises(StaleTokenError, match="version 7, older than max_staleness 1"):
        samples_of(mixed_versions(), step=9, max_staleness=1)
    trained = samples_of(mixed_versions(), step=9, max_staleness=2)
    assert all(sample.mask_T.all() for sample in trained)


def test_masking_trains_exactly_the_young_tokens() -> None:
    samples = samples_of(mixed_versions(), step=9, max_staleness=1, mask_stale=True)
    assert [int(sample.mask_T.sum()) for sample in samples] == [71, 71]  # 128 - 57
    assert not samples[0].mask_T[:57].any()


def test_overlong_filtering_masks_truncated_samples_but_keeps_their_statistics() -> None:
    group = scored("0/0", [1.0, 3.0], [[4], [5]], finish="length")
    samples = samples_of(group, overlong_filter=True)
    assert [sample.mask_T.any() for sample in samples] == [False, False]
    assert [sample.advantage for sample in samples] == pytest.approx([-1.0, 1.0], abs=1e-5)


def test_a_token_without_a_behaviour_probability_is_not_trained_and_counted() -> None:
    group, arrays = scored("0/0", [1.0, -1.0], [[4, 5, 6], [7]])
    arrays.logprobs[1] = np.nan
    samples = samples_of((group, arrays))
    assert [sample.mask_T.tolist() for sample in samples] == [[True, False, True], [True]]
    assert batch_metrics(Batch(step=5, groups=[group], totals={}), samples)["no_behaviour_logp"] == 1.0


def test_batch_metrics_are_over_survivors() -> None:
    group = scored("0/0", [1.0, None, -1.0], [[4, 4], [5], [6, 6, 6, 6]])
    batch = Batch(step=6, groups=[group[0]], totals={"issued": 3.0})
    metrics = batch_metrics(batch, samples_of(group, step=6))
    assert metrics["accuracy"] == 0.5
    assert metrics["reward"] == 0.0
    assert metrics["length_mean"] == 3.0
    assert metrics["age_max"] == 1.0
    assert metrics["filter_issued"] == 3.0
