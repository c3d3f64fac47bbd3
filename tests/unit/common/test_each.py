import asyncio

import pytest

from common.each import for_each
from common.inbox import Delivery, Inbox
from common.stages import STAGE_SECONDS, Stage


def seconds(stage: str, state: str) -> float:
    return float(STAGE_SECONDS.labels(stage, state)._value.get())


def delivery(number: int) -> Delivery:
    return Delivery("q", str(number), number, 1, [])


async def test_items_are_worked_on_side_by_side() -> None:
    inbox = Inbox(range(10), lambda size: None)
    met, together = asyncio.Event(), asyncio.Barrier(3)

    async def work(item: Delivery) -> None:
        await together.wait()
        met.set()

    loop = asyncio.create_task(for_each(inbox, work, stage=Stage("side by side")))
    for number in range(3):
        inbox.put(delivery(number))
    await asyncio.wait_for(met.wait(), 1)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


async def test_a_stage_is_starved_from_the_end_of_its_work_to_the_next_item() -> None:
    inbox = Inbox(range(10), lambda size: None)

    async def work(item: Delivery) -> None:
        await asyncio.sleep(0.05)

    loop = asyncio.create_task(for_each(inbox, work, stage=Stage("one item")))
    inbox.put(delivery(1))
    await asyncio.sleep(0.35)
    inbox.put(delivery(2))
    await asyncio.sleep(0.1)
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    # busy twice for 0.05 s; starved 0.3 s before the second item and about 0.05 s after it
    assert seconds("one item", "busy") == pytest.approx(0.1, abs=0.05)
    assert seconds("one item", "starved") == pytest.approx(0.35, abs=0.06)


async def test_an_error_in_the_work_ends_the_loop() -> None:
    inbox = Inbox(range(10), lambda size: None)

    async def work(item: Delivery) -> None:
        raise ValueError(item.id)

    inbox.put(delivery(7))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(for_each(inbox, work, stage=Stage("error")), 1)
    assert str(caught.value.exceptions[0]) == "7"
