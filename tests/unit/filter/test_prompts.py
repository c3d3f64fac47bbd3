from hypothesis import given
from hypothesis import strategies as st

from services.filter.prompts import UniformSampler, reissued, sampling_seed


@given(st.integers(1, 50), st.integers(0, 1000))
def test_every_epoch_visits_every_row_once(num_rows: int, seed: int) -> None:
    sampler = UniformSampler(num_rows, seed=seed)
    for epoch in (0, 1, 5):
        rows = [sampler.row(epoch * num_rows + place) for place in range(num_rows)]
        assert sorted(rows) == list(range(num_rows))


@given(st.integers(1, 50), st.integers(0, 10_000))
def test_an_id_leads_back_to_its_ordinal_even_when_issued_again(num_rows: int, ordinal: int) -> None:
    sampler = UniformSampler(num_rows, seed=0)
    group = sampler.id(ordinal)
    assert sampler.ordinal(group) == ordinal
    assert sampler.ordinal(reissued(reissued(group))) == ordinal


def test_epochs_and_seeds_have_different_orders() -> None:
    orders = {
        tuple(UniformSampler(20, seed=seed).row(epoch * 20 + place) for place in range(20))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_a_new_sampler_continues_where_another_stopped() -> None:
    assert [UniformSampler(7, seed=3).row(n) for n in range(20)] == [
        sampler.row(n) for sampler in [UniformSampler(7, seed=3)] for n in range(20)
    ]


def test_a_reissued_prompt_counts_its_attempts() -> None:
    assert reissued("3/000007") == "3/000007~1"
    assert reissued("3/000007~1") == "3/000007~2"


def test_sampling_seeds_differ_by_group_and_by_run() -> None:
    seeds = {sampling_seed(run, f"0/{n:06d}") for run in (0, 1) for n in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
