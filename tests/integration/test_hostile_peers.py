"""A real broker with keys, an honest giver and taker, and everybody who means harm at the same time."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

from common import keys
from common.client import Item, QueueClient, connect
from common.keys import client_keys
from services.cli.ports import Endpoint
from services.cli.scrape import scrape
from tests.integration.hostile import MARKER, attacks

RATE = 100
"""Hand-overs that the honest peers want each second."""
SECONDS = 4.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Victim:
    """A broker process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = str(folder / "keys")
        keys.create(Path(self.keys))
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.metrics_port = free_port()
        tables = {
            "run": {
                "name": "hostile",
                "model": "none",
                "folder": str(folder),
                "broker": self.address,
                "keys": self.keys,
            },
            "broker": {"metrics_port": self.metrics_port, "max_message_bytes": 1 << 20},
        }
        config = folder / "run.toml"
        config.write_text(tomli_w.dumps(tables))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.broker", str(config)], stderr=subprocess.DEVNULL
        )

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096

    def refusals(self) -> dict[str, float]:
        """By reason, as /metrics has them."""
        endpoint = Endpoint(name="broker-0", host="127.0.0.1", port=self.metrics_port, key="")
        found = scrape([endpoint]).of("dapo_broker_refused_total")
        return {number.labels["reason"]: number.value for number in found}

    def log(self) -> list[dict[str, object]]:
        lines = (self.folder / "hostile" / "logs" / "broker-0.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    victim = Victim(tmp_path)
    yield victim
    victim.process.terminate()
    victim.process.wait()


async def hand_overs(giver: QueueClient, taker: QueueClient, seconds: float) -> int:
    """Give at `RATE`; what was taken and settled in that time."""
    inbox, done = taker.take("prompts", window=32), 0

    async def settle() -> None:
        nonlocal done
        while True:
            item = await inbox.get()
            await taker.settle([item.lease])
            done += 1

    task, end, number = asyncio.create_task(settle()), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        await giver.give(Item("prompts", f"{end}/{number}", [b"x" * 1000]))
        number += 1
        await asyncio.sleep(1 / RATE)
    await asyncio.sleep(0.2)
    task.cancel()
    return done


async def test_hostile_peers_change_nothing_cost_little_and_are_named(victim: Victim, tmp_path: Path) -> None:
    async with (
        connect(victim.address, "filter-0", keys=client_keys(victim.keys, "filter")) as giver,
        connect(victim.address, "rollout-0", keys=client_keys(victim.keys, "rollout")) as taker,
    ):
        alone = await hand_overs(giver, taker, SECONDS)
        memory, stop = victim.resident_bytes(), threading.Event()
        hostile = attacks(victim.address, tmp_path, victim.keys)
        threads = [threading.Thread(target=attack, args=[stop], name=name) for name, attack in hostile.items()]
        for thread in threads:
            thread.start()
        try:
            attacked = await hand_overs(giver, taker, SECONDS)
            register = await giver.watch("policy").changed()
        finally:
            stop.set()
            for thread in threads:
                await asyncio.to_thread(thread.join)
        await asyncio.sleep(2.5)

    assert victim.process.poll() is None
    assert register.version == 0
    assert not (tmp_path / MARKER).exists()
    assert attacked >= 0.9 * alone > 0
    assert victim.resident_bytes() - memory < 50 << 20

    refused = victim.refusals()
    assert {"unknown key", "malformed", "not allowed"} <= refused.keys()
    assert refused.keys() & {"no key, or wrong key of the server", "broken off"}
    named = {(line["reason"], line["peer"]) for line in victim.log() if line["event"] == "refused"}
    assert ("unknown key", "somebody at 127.0.0.1") in named
    assert ("not allowed", "no session, reward at 127.0.0.1, to use the name learner-0") in named or (
        "not allowed", "reward-9, reward at 127.0.0.1, to use the name learner-0"
    ) in named  # fmt: skip


def test_metrics_are_read_only(victim: Victim) -> None:
    url = f"http://127.0.0.1:{victim.metrics_port}/metrics"
    for _ in range(100):
        try:
            assert urllib.request.urlopen(url).status == 200
            break
        except OSError:
            time.sleep(0.1)
    with pytest.raises(urllib.error.HTTPError, match=r"405|501"):
        urllib.request.urlopen(urllib.request.Request(url, data=b"x", method="POST"))
