"""`dapo dead` against a real broker."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import msgspec
import pytest

from common.client import Item, connect
from services.cli.letters import main, read
from tests.chaos.setting import free_ports


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run folder whose broker is up; the items of `prompts` die at the first failure."""
    (port,) = free_ports(1)
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f'[run]\nname = "r"\nmodel = "none"\nfolder = "{tmp_path}"\nbroker = "tcp://127.0.0.1:{port}"\n'
        "heartbeat_s = 0.1\nlease_s = 0.5\n[broker]\nmetrics_port = -1\nmax_deliveries = 1\n"
    )
    command = [sys.executable, "-m", "services.broker", str(folder / "config.toml")]
    broker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    asyncio.run(kill_two(f"tcp://127.0.0.1:{port}"))
    yield folder
    broker.terminate()
    assert broker.wait(timeout=20) == 0


async def kill_two(address: str) -> None:
    """Two prompts whose holder falls silent."""
    async with connect(address, "filter-0", heartbeat_s=0.1) as client:
        header = msgspec.msgpack.encode({"type": "Prompt", "id": "0/000001", "chat": ["x" * 1000]})
        await client.give(Item("prompts", "0/000001", [header, b"1234"]), Item("prompts", "0/000002", [header]))
        inbox = client.take("prompts", window=2)
        for _ in range(2):
            client.abandon((await inbox.get()).lease)
        inbox.resize(0)
        await asyncio.sleep(1.5)


def test_dead_letters_are_listed_shown_retried_and_dropped(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(run)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in listed] == [["prompts", f"0/00000{n}", "1"] for n in (1, 2)]
    assert all(line.endswith("filter-0") for line in listed)

    assert main(["show", str(run), "0/000001"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["frame_bytes"][1] == 4
    assert shown["message"]["chat"] == ["x" * 300 + "..."]

    assert main(["retry", str(run), "0/000001"]) == 0
    assert main(["drop", str(run), "--all"]) == 0
    assert read(run) == []

    with next((run / "history").glob("broker-0-*")).open("rb") as file:
        events = [(record["event"], record["id"]) for record in msgpack.Unpacker(file)]
    assert sorted(events[:2]) == [("dead", "0/000001"), ("dead", "0/000002")]
    assert events[2:] == [("retried", "0/000001"), ("dropped", "0/000002")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["retry", "RUN"], "name the dead letters, or give --all"),
        (["show", "RUN", "9/9"], "no dead letter is named 9/9"),
        (["list", "RUN/none"], "give the folder of a run that has started"),
    ],
)
def test_a_mistake_is_one_sentence(
    run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.replace("RUN", str(run)) for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
