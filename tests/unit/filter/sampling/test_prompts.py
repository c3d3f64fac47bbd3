import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from services.filter.sampling.posterior import Evidence
from services.filter.sampling.prompts import Prompts, name_of
from services.filter.sampling.state import SamplerState

ROWS = 5
changes = st.lists(
    st.tuples(st.integers(0, ROWS - 1), st.floats(0, 100), st.floats(0, 100), st.integers(0, 9)), max_size=200
)


@given(changes, st.integers(0, 200))
def test_the_file_and_the_changes_since_give_the_arrays_exactly(changes: list[tuple[int, ...]], death: int) -> None:
    state, files = SamplerState(), {"": b""}
    prompts, twin = Prompts(state, ROWS), Prompts(SamplerState(), ROWS)
    for at, (row, attempts, successes, epoch) in enumerate(changes):
        for either in (prompts, twin):
            either.learn(row, Evidence(attempts, successes, at))
            either.postpone(row, epoch)
        if at % 7 == 6:  # sooner than `file` would
            content = prompts._table.tobytes()
            state.file = name_of(content)
            files[state.file] = content
            state.overlay.clear()
        if at == death:
            prompts = Prompts(state, ROWS, files[state.file])
    assert Prompts(state, ROWS, files[state.file])._table.tobytes() == twin._table.tobytes()


def test_a_file_is_written_after_so_many_changes_and_empties_the_register() -> None:
    state = SamplerState()
    prompts = Prompts(state, 10_000)  # every sqrt(1.3 * 10,000) = 114 changes
    for row in range(114):
        prompts.learn(row, Evidence(1.0, 1.0, 0))
        assert prompts.file() is None
    prompts.learn(114, Evidence(1.0, 1.0, 0))
    written = prompts.file()
    assert written is not None
    assert (state.file, state.overlay, len(written[1])) == (written[0], {}, 16 * 10_000)
    assert prompts.file() is None


@pytest.mark.parametrize("content", [b"", b"\0" * 16 * ROWS])
def test_a_missing_or_damaged_file_is_said(content: bytes) -> None:
    with pytest.raises(UserError, match=r"sampling/prompts-0\.bin is damaged or missing"):
        Prompts(SamplerState(file="prompts-0.bin"), ROWS, content)


def test_a_prompt_that_is_postponed_is_never_brought_forward() -> None:
    prompts = Prompts(SamplerState(), ROWS)
    prompts.postpone(0, 7)
    prompts.postpone(0, 3)
    assert prompts.due[0] == 7
