"""A weight server process and rollouts that cannot read its folder."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import zmq

from common import chunks, keys, layout, weights
from common.chunks import CHUNK, Absent, Describe
from common.errors import WireError
from common.gate import secure
from common.image import Image
from common.keys import client_keys
from common.messages import Policy
from common.weights import Manifest
from services.rollout.engine import LoadRefusedError
from services.rollout.hostcopy import HostCopy
from services.rollout.stream import Stream

SIZE = 5 * CHUNK + 12_346
"""Bytes of the tensors: several chunks and a part of one."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Served:
    """A store with version 0, and a process that serves it."""

    def __init__(self, folder: Path, **config: float) -> None:
        self.folder = folder
        self.keys = str(folder / "keys")
        keys.create(Path(self.keys))
        self.address = f"tcp://127.0.0.1:{free_port()}"
        run = {"name": "w", "model": "none", "folder": str(folder), "weights": self.address, "keys": self.keys}
        self.config = folder / "run.toml"
        self.config.write_text(tomli_w.dumps({"run": run, "weights": {"metrics_port": -1, **config}}))
        self.store = folder / "w" / "weights"
        self.image = Image(layout.build([("a", "BF16", [SIZE // 2])]), lambda size: memoryview(bytearray(size)))
        self.image.units[:] = np.random.default_rng(0).integers(0, 65536, SIZE // 2, dtype=np.uint16)
        self.manifest = self.publish(0)
        self.start()

    def publish(self, version: int) -> Manifest:
        return weights.publish(self.store, version, lambda path: path.write_bytes(self.image.memory) and None)

    def start(self) -> None:
        command = [sys.executable, "-m", "services.weights", str(self.config)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stream(self, role: str = "rollout") -> Stream:
        return Stream(self.address, client_keys(self.keys, role, server="weights"), give_up_s=30.0)

    def policy(self) -> Policy:
        """As the learner announces it: a folder that is not on the rollout's machine."""
        return Policy(version=0, digest=self.manifest.digest, path="/somewhere/else/v000000")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.kill()


def tensors(path: Path) -> bytes:
    data = memoryview(path.read_bytes())
    return bytes(data[len(layout.read(data).header) :])


def test_two_rollouts_at_once_get_the_bytes_of_the_store(served: Served) -> None:
    found: dict[int, bytes] = {}

    def follow(number: int) -> None:
        copy = HostCopy(served.stream)
        found[number] = tensors(copy.prepare(served.policy()))
        copy.close()

    threads = [threading.Thread(target=follow, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == served.image.tensors


def test_a_transfer_goes_on_at_the_last_chunk_when_the_server_is_killed_in_its_middle(served: Served) -> None:
    stream = served.stream()
    pieces = []
    for piece in stream.data(stream.manifest(0)):
        pieces.append(bytes(piece))
        if len(pieces) == 2:
            served.kill()
            served.start()
    stream.close()
    assert b"".join(pieces) == served.image.tensors
    assert len(pieces) == 6


def test_a_version_that_is_not_there_is_refused_with_the_reason(served: Served) -> None:
    stream = served.stream()
    with pytest.raises(WireError, match=r"does not have version 7: .*No such file"):
        stream.manifest(7)
    stream.close()


def test_a_server_that_is_silent_is_given_up(tmp_path: Path) -> None:
    stream = Stream(f"tcp://127.0.0.1:{free_port()}", give_up_s=0.2)
    with pytest.raises(TimeoutError, match="has been silent for"):
        stream.manifest(0)
    copy = HostCopy(lambda: stream)
    with pytest.raises(LoadRefusedError, match="has been silent"):
        copy.prepare(Policy(version=0, digest="0" * 64, path=str(tmp_path / "nowhere" / "v000000")))
    copy.close()


def test_the_bandwidth_cap_holds(tmp_path: Path) -> None:
    served = Served(tmp_path, max_mb_per_s=20.0)
    try:
        stream = served.stream()
        manifest = stream.manifest(0)
        start = time.monotonic()
        received = sum(len(piece) for piece in stream.data(manifest))
        seconds = time.monotonic() - start
        stream.close()
    finally:
        served.kill()
    # 21 MB at 20 MB/s, less the burst of 8.4 MB and the chunk that may be owed, 4.2 MB
    assert received == SIZE // 2 * 2
    assert (received - 12.6e6) / 20e6 <= seconds <= 5.0


@pytest.mark.parametrize("role", ["reward", "learner", None])
def test_only_who_needs_weights_may_ask_for_them(served: Served, role: str | None) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        secure(peer, client_keys(served.keys, role, server="weights") if role else None)
        peer.connect(served.address)
        peer.send(chunks.encoder.encode(Describe(version=0)))
        assert not peer.poll(1500)
    stream = served.stream()
    assert stream.manifest(0) == served.manifest
    stream.close()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x91" * 1000, b"x" * 5000, b"\xdd\xff\xff\xff\xff"])
def test_garbage_is_refused_and_the_next_question_answered(served: Served, data: bytes) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        secure(peer, client_keys(served.keys, "rollout", server="weights"))
        peer.connect(served.address)
        peer.send(data)
        deadline = time.monotonic() + 20
        while not peer.poll(300) and time.monotonic() < deadline:
            peer.send(chunks.encoder.encode(Describe(version=3)))  # too long a frame ends the connection
        assert peer.poll(0)
        header, _ = peer.recv_multipart()
        assert isinstance(chunks.from_server_decoder.decode(header), Absent)


def test_refusals_are_in_the_log_with_the_peers_key(served: Served) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        secure(peer, client_keys(served.keys, "reward", server="weights"))
        peer.connect(served.address)
        peer.send(chunks.encoder.encode(Describe(version=0)))
        path, deadline = served.folder / "w" / "logs" / "weights-0.jsonl", time.monotonic() + 10
        while time.monotonic() < deadline:
            lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            if any(line.get("peer") == "reward at 127.0.0.1" for line in lines):
                break
            time.sleep(0.1)
        else:
            pytest.fail(os.linesep.join(map(str, lines)))
