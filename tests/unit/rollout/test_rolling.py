import asyncio
from pathlib import Path

from common.client import Item
from common.messages import TURNS
from services.rollout.rolling import turn
from tests.memory_broker import MemoryBroker


async def test_one_replica_after_the_other_has_the_turn(tmp_path: Path) -> None:
    holding, most, done = 0, 0, 0

    async def load(broker: MemoryBroker, name: str) -> None:
        nonlocal holding, most, done
        async with broker.client(name) as client:
            for _ in range(3):
                async with turn(client):
                    holding += 1
                    most = max(most, holding)
                    await asyncio.sleep(0.005)
                    holding -= 1
                    done += 1

    async with MemoryBroker(tmp_path) as broker, broker.client("learner-0") as learner:
        for _ in range(2):  # a learner that starts again gives it again: still one turn
            await learner.give(Item(TURNS, "0", [b""]))
        await asyncio.gather(*(load(broker, f"rollout-{number}") for number in range(4)))
        assert broker.ids(TURNS) == ["12"]
    assert (most, done) == (1, 12)


async def test_the_turn_of_a_replica_that_dies_goes_to_the_next(tmp_path: Path) -> None:
    async with MemoryBroker(tmp_path) as broker, broker.client("learner-0") as learner:
        await learner.give(Item(TURNS, "0", [b""]))
        async with broker.client("rollout-0", dies=True) as first:
            await first.take(TURNS, window=1).get()
        async with broker.client("rollout-1") as second:
            waiting = asyncio.create_task(_once(second))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            broker.advance(11.0)
            await waiting


async def _once(client) -> None:  # type: ignore[no-untyped-def]
    async with turn(client):
        pass
