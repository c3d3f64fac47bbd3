"""What publishing a policy version costs: bytes and seconds, full against delta, and how fast the bytes travel.

    python benchmarks/weights.py deltas MODEL     a real model trained by AdamW at three learning rates
    python benchmarks/weights.py synthetic        a made-up model of --weights values, 0.4 % of them changed
    python benchmarks/weights.py stream           the weight server to two rollouts, against bare ZeroMQ and a file copy

MODEL is a Hugging Face folder. `take` is what a rollout does before its engine sees the version: fetch, apply, check.
The engine's own loading is the same for both and is not counted. One JSON object on stdout.
"""

import argparse
import json
import mmap
import multiprocessing
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from common import delta, layout, weights
from common.chunks import CHUNK
from common.config import RunConfig
from common.history import History
from common.image import Image
from common.life import Process
from common.messages import Policy as Announced
from services.rollout.hostcopy import HostCopy
from services.rollout.stream import CREDIT, Stream
from services.weights.config import WeightsConfig
from services.weights.service import serve

STEPS = 4
RATES = (1e-6, 1e-5, 1e-4)
SHARE = 0.004
"""Changed share of the synthetic model: what RL learning rates change."""
TEXT = [
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. How many clips?",
    "Weng earns 12 dollars an hour for babysitting. Yesterday, she just did 50 minutes of babysitting.",
    "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?",
    "James decides to run 3 sprints 3 times a week. He runs 60 meters each sprint. How many total meters a week?",
]


def seconds(call: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def best(call: Callable[[], Any], repeats: int = 5) -> float:
    """The fastest of some calls, which is what the machine can do."""
    return min(seconds(call) for _ in range(repeats))


# ---------------------------------------------------------------- a real model


def deltas(model: str) -> dict[str, Any]:
    """Every learning rate, from the same start."""
    return {f"lr {rate:g}": trained(model, rate) for rate in RATES}


def trained(model: str, rate: float) -> dict[str, float]:
    """Train a few steps at one learning rate and publish each version in both ways."""
    import torch
    from transformers import AutoTokenizer

    from services.learner.config import LearnerConfig
    from services.learner.model import Policy
    from services.learner.publisher import Publisher
    from services.learner.ranks import World

    torch.set_num_threads(1)
    policy = Policy.load(model, temperature=1.0, config=LearnerConfig())
    ids = AutoTokenizer.from_pretrained(model)(TEXT)["input_ids"]
    optimizer = torch.optim.AdamW(policy.named_parameters().values(), lr=rate, weight_decay=0.1)
    rows: list[dict[str, float]] = []
    with stores() as (whole, sparse):
        full = Publisher(policy=policy, world=World(), store=whole, dtype=torch.bfloat16, snapshot_every=1)
        some = Publisher(policy=policy, world=World(), store=sparse, dtype=torch.bfloat16, snapshot_every=1000)
        copies = HostCopy(), HostCopy()
        for version in range(STEPS + 1):
            publish_full = seconds(lambda v=version: full.publish(v))
            publish_delta = seconds(lambda v=version: some.publish(v))
            take_full = seconds(lambda v=version: copies[0].prepare(announced(whole, v)))
            take_delta = seconds(lambda v=version: copies[1].prepare(announced(sparse, v)))
            size = (weights.version_folder(whole, version) / weights.TENSORS).stat().st_size
            manifest = weights.read_manifest(weights.version_folder(sparse, version))
            rows.append({
                "full_bytes": size, "delta_bytes": stored(sparse, version),
                "changed": sum(block.count for block in manifest.blocks) * delta.UNIT / size,
                "publish_full_s": publish_full, "publish_delta_s": publish_delta,
                "take_full_s": take_full, "take_delta_s": take_delta,
            })  # fmt: skip
            shutil.rmtree(weights.version_folder(whole, version))
            step(policy, optimizer, ids)
    rows = rows[2:]  # the first is a snapshot, the first delta builds the copy in memory
    found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    found["bytes_ratio"] = found["delta_bytes"] / found["full_bytes"]
    found["seconds_ratio"] = (found["publish_delta_s"] + found["take_delta_s"]) / (
        found["publish_full_s"] + found["take_full_s"]
    )
    return found


def step(policy: Any, optimizer: Any, ids: list[list[int]]) -> None:
    """One AdamW step on the next-token loss of some sentences, clipped as the learner clips."""
    import torch

    from services.learner.attention import segments

    optimizer.zero_grad()
    for row in ids:
        tokens = torch.tensor([row])
        logits = policy.model(input_ids=tokens, segments=segments([len(row)], policy.device)).logits
        torch.nn.functional.cross_entropy(logits[0, :-1], tokens[0, 1:]).backward()
    torch.nn.utils.clip_grad_norm_(policy.named_parameters().values(), 1.0)
    optimizer.step()


def announced(store: Path, version: int) -> Announced:
    """What the learner says of a version."""
    folder = weights.version_folder(store, version)
    return Announced(version=version, digest=weights.read_manifest(folder).digest, path=str(folder))


def stored(store: Path, version: int) -> int:
    """Bytes of a version's files."""
    return sum(path.stat().st_size for path in weights.version_folder(store, version).iterdir())


@contextmanager
def stores() -> Iterator[tuple[Path, Path]]:
    """Two stores in memory, so that the disk is not what is measured."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "full", Path(folder) / "delta"


# ---------------------------------------------------------------- a made-up model


def synthetic(count: int) -> dict[str, float]:
    """Coding and applying against copying the memory."""
    rng = np.random.default_rng(0)
    image = made_up(count)
    positions = np.flatnonzero(rng.random(count, dtype=np.float32) < SHARE).astype(np.int64)
    values = (image.units[positions] ^ np.uint16(1)).astype(np.uint16)
    encode = seconds(lambda: list(delta.encode(positions, values)))
    coded = list(delta.encode(positions, values))

    def apply() -> None:
        for block, data in coded:
            delta.apply(image.units, block, data)

    other = np.empty_like(image.units)
    num_bytes = image.units.nbytes
    found = {
        "weights": count,
        "changed": len(positions) / count,
        "bytes_ratio": sum(len(data) for _, data in coded) / num_bytes,
        "encode_s": encode,
        "apply_s": best(apply),
        "digest_s": best(lambda: weights.digests(image.places, image.tensors), 2),
        "memcpy_s": best(lambda: np.copyto(other, image.units), 3),
    }
    for name in ("apply", "digest", "memcpy"):
        found[f"{name}_gb_per_s"] = num_bytes / found[f"{name}_s"] / 1e9
    found["apply_and_digest_gb_per_s"] = num_bytes / (found["apply_s"] + found["digest_s"]) / 1e9
    return found


def made_up(count: int) -> Image:
    """Normal values in bf16, in tensors of 2^24."""
    sizes = [1 << 24] * (count >> 24) + [count % (1 << 24)] * bool(count % (1 << 24))
    places = layout.build([(f"layer.{n}", "BF16", [size]) for n, size in enumerate(sizes)])
    image = Image(places, lambda size: memoryview(bytearray(size)))
    piece = (np.random.default_rng(1).normal(0, 0.02, 1 << 20).astype(np.float32).view(np.uint32) >> 16).astype(
        np.uint16
    )
    for start in range(0, count, len(piece)):
        image.units[start : start + len(piece)] = piece[: count - start]
    return image


# ---------------------------------------------------------------- the stream


def stream(count: int) -> dict[str, float]:
    """Two rollouts at once; `bare` sends frames of the same size with the same credit and no server behind."""
    with stores() as (folder, _):
        image = made_up(count)
        store = folder / "w" / "weights"
        weights.publish(store, 0, lambda path: path.write_bytes(image.memory) and None)
        gigabytes = len(image.tensors) / 1e9
        path = weights.version_folder(store, 0) / weights.TENSORS
        copy_s = best(lambda: shutil.copyfile(path, folder / "copy"), 3)
        found = {"gb": gigabytes, "file_copy_gb_per_s": gigabytes / copy_s}
        for name, start in (("bare", bare_server), ("server", real_server)):
            address = f"tcp://127.0.0.1:{free_port()}"
            process = multiprocessing.get_context("spawn").Process(
                target=start, args=(address, str(folder)), daemon=True
            )
            process.start()
            reader = bare_reader if name == "bare" else real_reader
            both(reader, address, len(image.tensors))  # warm
            found[f"{name}_gb_per_s"] = 2 * gigabytes / min(both(reader, address, len(image.tensors)) for _ in range(3))
            process.kill()
            process.join()
        found["of_bare"] = found["server_gb_per_s"] / found["bare_gb_per_s"]
        return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def both(reader: Callable[[str, int], None], address: str, num_bytes: int) -> float:
    """Seconds until two readers have everything."""
    threads = [threading.Thread(target=reader, args=(address, num_bytes)) for _ in range(2)]
    return seconds(lambda: [thread.start() for thread in threads] and [thread.join() for thread in threads])


def real_server(address: str, folder: str) -> None:
    run = RunConfig(name="w", model="none", folder=folder, weights=address)
    history = History(Path(folder) / "history", "weights-0")
    process = Process(role="weights", replica="0", run=run, config=WeightsConfig(), history=history)
    serve(process, threading.Event())


def real_reader(address: str, num_bytes: int) -> None:
    source = Stream(address)
    target = np.empty(num_bytes, np.uint8)
    at = 0
    for piece in source.data(source.manifest(0)):
        target[at : at + len(piece)] = piece
        at += len(piece)
    source.close()


def bare_server(address: str, folder: str) -> None:
    """The same bytes, each reader's in order, whatever it says."""
    path = weights.version_folder(Path(folder) / "w" / "weights", 0) / weights.TENSORS
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    sent: dict[bytes, int] = {}
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(address)
        while True:
            peer, _ = router.recv_multipart()
            at = sent.get(peer, 0)
            sent[peer] = at + CHUNK
            router.send_multipart([peer, data[at : at + CHUNK]], copy=False)


def bare_reader(address: str, num_bytes: int) -> None:
    target = np.empty(num_bytes, np.uint8)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        wanted = -(-num_bytes // CHUNK)
        for _ in range(min(CREDIT, wanted)):
            dealer.send(b"")
        for number in range(wanted):
            piece = dealer.recv(copy=False).buffer
            if number + CREDIT < wanted:
                dealer.send(b"")
            end = min(num_bytes, (number + 1) * CHUNK)
            target[number * CHUNK : end] = piece[: end - number * CHUNK]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of publishing a policy version.")
    parser.add_argument("what", choices=("deltas", "synthetic", "stream"))
    parser.add_argument("model", nargs="?", help="Hugging Face folder, for `deltas`")
    parser.add_argument("--weights", type=int, default=1_000_000_000, help="values of the made-up model")
    given = parser.parse_args()
    if given.what == "deltas":
        found: Any = deltas(given.model)
    else:
        found = {"synthetic": synthetic, "stream": stream}[given.what](given.weights)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
