import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from services.reward.gate import Gate
from services.reward.turns import LEVELS


async def test_those_of_a_lower_level_are_let_in_first_and_equals_in_the_order_of_their_coming() -> None:
    gate, order = Gate(1), []

    async def enter(name: str, level: int) -> None:
        async with gate.inside(level):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(enter(*who) for who in [("a", 0), ("b", 2), ("c", 1), ("d", 0), ("e", 1)]))
    assert order == ["a", "d", "c", "e", "b"]
    assert gate.lowest == LEVELS


@settings(deadline=None, max_examples=100)
@given(
    places=st.integers(1, 3),
    levels=st.lists(st.integers(0, LEVELS - 1), max_size=12),
    cancelled=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 6)), max_size=8),
)
def test_places_are_never_exceeded_nor_lost_whoever_is_cancelled_and_when(
    places: int, levels: list[int], cancelled: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        gate, inside = Gate(places), 0

        async def enter(level: int) -> None:
            nonlocal inside
            async with gate.inside(level):
                inside += 1
                assert inside <= places
                try:
                    await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = [asyncio.create_task(enter(level)) for level in levels]
        for moment in range(7):
            for who, when in cancelled:
                if when == moment and who < len(tasks):
                    tasks[who].cancel()
            await asyncio.sleep(0)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
        assert gate.lowest == LEVELS
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(places):
                await asyncio.wait_for(stack.enter_async_context(gate.inside(0)), 1)

    asyncio.run(run())
