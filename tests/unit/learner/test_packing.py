import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.learner.packing import MicroBatch, num_tokens, pack, plan
from services.learner.samples import TrainSample
from tests.unit.learner.models import make_samples, tiny_policy, with_shared_prompts

CPU = torch.device("cpu")


@st.composite
def batches(draw: st.DrawFn) -> list[TrainSample]:
    """Samples of up to 40 lengths, in groups of some size that share a prompt or do not."""
    lengths = draw(st.lists(st.integers(1, 60), min_size=1, max_size=40))
    samples = make_samples(lengths, group_size=draw(st.integers(1, 8)))
    return with_shared_prompts(samples) if draw(st.booleans()) else samples


@given(batches(), st.integers(1, 200), st.integers(1, 5))
def test_every_sample_is_in_one_micro_batch_within_the_budget_and_every_rank_has_as_many(
    samples: list[TrainSample], budget: int, ranks: int
) -> None:
    parts = plan(samples, range(len(samples)), budget=budget, ranks=ranks)
    assert sorted(place for rank in parts for part in rank for place in part) == list(range(len(samples)))
    assert {len(rank) for rank in parts} == {len(parts[0])}
    assert all(len(part) < 2 or num_tokens(samples, part) <= budget for rank in parts for part in rank)


@given(batches(), st.integers(2, 4))
def test_ranks_carry_equal_numbers_of_tokens_up_to_one_bundle(samples: list[TrainSample], ranks: int) -> None:
    loads = [
        sum(num_tokens(samples, part) for part in rank)
        for rank in plan(samples, range(len(samples)), budget=10_000, ranks=ranks)
    ]
    bundle = -(-num_tokens(samples, range(len(samples))) // (4 * ranks))
    assert max(loads) - min(loads) <= max(bundle, *(sample.length for sample in samples))


def test_a_prompt_goes_through_the_model_once_for_all_its_samples() -> None:
    samples = with_shared_prompts(make_samples([5, 9, 7, 3], group_size=2))
    batch = pack(samples, range(4), CPU)
    prompts = len(samples[0].prompt_P) + len(samples[2].prompt_P)
    assert len(batch.input_ids_L) == prompts + 5 + 9 + 7 + 3
    # the first token of every response is predicted by the last token of the one prompt
    first = batch.source_N[torch.tensor([0, 5])]
    assert first.tolist() == [len(samples[0].prompt_P) - 1] * 2


def test_samples_of_one_prompt_stay_together_where_the_budget_lets_them() -> None:
    samples = with_shared_prompts(make_samples([20] * 16, group_size=4))
    (parts,) = plan(samples, range(16), budget=200)
    for part in parts:
        assert len({samples[place].group for place in part}) <= 2


def test_a_budget_is_filled_without_padding() -> None:
    samples = make_samples([28] * 8)  # with prompts of 2 to 6 tokens, 254 tokens in all
    (parts,) = plan(samples, range(8), budget=130)
    assert len(parts) == 2
    batch = pack(samples, parts[0], CPU)
    assert len(batch.input_ids_L) == num_tokens(samples, parts[0])


def test_a_blank_trains_nothing() -> None:
    batch = pack(make_samples([3]), [], CPU)
    assert batch.mask_N.tolist() == [0.0]
    assert batch.weight_N.tolist() == [0.0]
    assert batch.order == []


def test_targets_are_predicted_by_the_position_before_them() -> None:
    samples = make_samples([3, 2])
    batch = pack(samples, [0, 1], CPU)
    assert batch.target_N.tolist() == [*samples[0].response_T, *samples[1].response_T]
    assert torch.equal(batch.input_ids_L[batch.source_N + 1], batch.target_N)
    assert batch.segments.expand_E is None


def hidden(batch: MicroBatch) -> torch.Tensor:
    with torch.no_grad():
        return tiny_policy(dtype=torch.float64).scores(batch).logp_N


@pytest.mark.parametrize("shared", [False, True])
def test_a_sample_cannot_see_the_others_it_is_packed_with(shared: bool) -> None:
    samples = make_samples([5, 9, 7])
    if shared:
        samples = with_shared_prompts(samples)
    alone = hidden(pack(samples, [1], CPU))
    for other in (0, 2):
        changed = dataclasses.replace(samples[other], response_T=(samples[other].response_T + 1).astype(np.int32) % 64)
        packed = pack([*samples[:other], changed, *samples[other + 1 :]], [0, 1, 2], CPU)
        assert torch.allclose(hidden(packed)[packed.sample_N == 1], alone, atol=1e-12)


def test_packed_attention_gives_what_padded_attention_gives() -> None:
    # transformers' own SDPA over left- and right-padded rows, against the packed sequence
    samples = make_samples([5, 9, 1])
    policy = tiny_policy(dtype=torch.float64)
    expected = hidden(pack(samples, [0, 1, 2], CPU)).split([5, 9, 1])
    policy.model.set_attn_implementation("sdpa")
    for side in ("left", "right"):
        width = max(sample.length for sample in samples)
        for sample, logp in zip(samples, expected, strict=True):
            ids = torch.tensor([*sample.prompt_P, *sample.response_T])
            pad = torch.zeros(width - len(ids), dtype=torch.long)
            row = torch.cat([pad, ids] if side == "left" else [ids, pad])
            mask = torch.cat([pad, torch.ones_like(ids)] if side == "left" else [torch.ones_like(ids), pad])
            position = (mask.cumsum(0) - 1).clamp(min=0)
            logits = policy.model(input_ids=row[None], attention_mask=mask[None], position_ids=position[None]).logits[
                0, mask.bool()
            ]
            own = logits.log_softmax(-1)[len(sample.prompt_P) - 1 : -1]
            got = own.gather(-1, torch.tensor(sample.response_T.astype(np.int64))[:, None])[:, 0]
            assert torch.allclose(got, logp, atol=1e-10)


def test_a_sliding_window_is_kept_inside_a_sample() -> None:
    # a Mistral with a window of 4 in both layers, packed, against transformers' own masks sample by sample
    from transformers import MistralConfig, MistralForCausalLM

    from services.learner.model import Policy

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=4,
    )  # fmt: skip
    model = MistralForCausalLM(config).double().eval()
    samples = make_samples([9, 12])
    expected = [
        model(input_ids=torch.tensor([[*s.prompt_P, *s.response_T]])).logits[0].log_softmax(-1) for s in samples
    ]
    packed = pack(samples, [0, 1], CPU)
    got = Policy(model, temperature=1.0).scores(packed).logp_N.split([9, 12])
    for sample, logits, logp in zip(samples, expected, got, strict=True):
        places = torch.arange(len(sample.prompt_P) - 1, sample.length - 1)
        assert torch.allclose(logits[places, sample.response_T.astype(np.int64)], logp, atol=1e-10)


@pytest.mark.parametrize("argument", ["softcap", "s_aux"])
def test_attention_that_bends_its_scores_is_refused(argument: str) -> None:
    from common.errors import UserError
    from services.learner.attention import packed_attention, segments

    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UserError, match=f"`{argument}`, which the learner does not cover"):
        packed_attention(torch.nn.Module(), q, q, q, None, segments=segments([3], CPU), **{argument: torch.ones(1)})
