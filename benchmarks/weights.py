"""What publishing a policy version costs: bytes and seconds, full against delta, and how fast the bytes travel.

    python benchmarks/weights.py deltas MODEL     a real model trained by AdamW at three learning rates
    python benchmarks/weights.py synthetic        a made-up model of --weights values, 0.4 % of them changed

MODEL is a Hugging Face folder. `take` is what a rollout does before its engine sees the version: fetch, apply, check;
`local` from a folder in memory, `network` from a weight server that sends at most 1 Gbit/s. The engine's own loading is
the same for all and is not counted. benchmarks/weight_stream.py has the speed of the server. One JSON object on stdout.
"""

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from common import delta, layout, weights
from common.image import Image
from common.messages import Policy as Announced
from services.rollout.hostcopy import HostCopy
from services.rollout.stream import Stream

STEPS = 4
RATES = (1e-6, 1e-5, 1e-4)
GIGABIT = 125.0
"""Megabytes a second."""
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


class Way:
    """One way of publishing, full or delta, with a rollout beside the learner and one behind a network."""

    def __init__(self, kind: str, folder: Path, policy: Any, *, snapshot_every: int) -> None:
        import torch

        from services.learner.publisher import Publisher
        from services.learner.ranks import World

        self.kind = kind
        self.store = folder / kind / "weights"
        self.publisher = Publisher(
            policy=policy, world=World(), store=self.store, dtype=torch.bfloat16, snapshot_every=snapshot_every
        )
        self.copies = {"local": HostCopy(), "network": HostCopy(lambda: Stream(served(folder, kind)))}

    def measure(self, version: int) -> dict[str, float]:
        """Publish a version and take it."""
        found = {f"publish_{self.kind}_s": seconds(lambda: self.publisher.publish(version))}
        folder = weights.version_folder(self.store, version)
        digest = weights.read_manifest(folder).digest
        for where, path in (("local", str(folder)), ("network", "/on/another/machine")):
            policy, copy = Announced(version=version, digest=digest, path=path), self.copies[where]
            found[f"take_{self.kind}_{where}_s"] = seconds(lambda p=policy, c=copy: c.prepare(p))
        found[f"{self.kind}_bytes"] = sum(path.stat().st_size for path in folder.iterdir())
        return found


def trained(model: str, rate: float) -> dict[str, float]:
    """Train a few steps at one learning rate and publish each version in both ways."""
    import torch
    from transformers import AutoTokenizer

    from services.learner.config import LearnerConfig
    from services.learner.model import Policy

    torch.set_num_threads(1)
    policy = Policy.load(model, temperature=1.0, config=LearnerConfig())
    ids = AutoTokenizer.from_pretrained(model)(TEXT)["input_ids"]
    optimizer = torch.optim.AdamW(policy.named_parameters().values(), lr=rate, weight_decay=0.1)
    rows: list[dict[str, float]] = []
    with in_memory() as folder:
        full, sparse = (Way(kind, folder, policy, snapshot_every=k) for kind, k in (("full", 1), ("delta", 1000)))
        for version in range(STEPS + 2):
            rows.append(full.measure(version) | sparse.measure(version))
            blocks = weights.read_manifest(weights.version_folder(sparse.store, version)).blocks
            rows[-1]["changed"] = sum(block.count for block in blocks) * delta.UNIT / rows[-1]["full_bytes"]
            shutil.rmtree(weights.version_folder(full.store, version))
            step(policy, optimizer, ids)
    rows = rows[2:]  # the first is a snapshot, and the first delta builds the copy in memory
    found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    found["bytes_ratio"] = found["delta_bytes"] / found["full_bytes"]
    for where in ("local", "network"):
        whole_s, sparse_s = (found[f"publish_{kind}_s"] + found[f"take_{kind}_{where}_s"] for kind in ("full", "delta"))
        found[f"seconds_ratio_{where}"] = sparse_s / whole_s
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


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder in memory, so that the disk is not what is measured. Servers that were started in it end with it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        try:
            yield Path(folder)
        finally:
            for process in SERVERS:
                process.kill()
                process.wait()
            SERVERS.clear()


SERVERS: list[subprocess.Popen[bytes]] = []


def served(folder: Path, name: str) -> str:
    """Start a weight server for the store of this name; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    run = {"name": name, "model": "none", "folder": str(folder), "weights": address}
    config = folder / f"{name}.toml"
    config.write_text(tomli_w.dumps({"run": run, "weights": {"max_mb_per_s": GIGABIT, "metrics_port": -1}}))
    command = [sys.executable, "-m", "services.weights", str(config)]
    SERVERS.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
    return address


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


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of publishing a policy version.")
    parser.add_argument("what", choices=("deltas", "synthetic"))
    parser.add_argument("model", nargs="?", help="Hugging Face folder, for `deltas`")
    parser.add_argument("--weights", type=int, default=1_000_000_000, help="values of the made-up model")
    given = parser.parse_args()
    found: Any = deltas(given.model) if given.what == "deltas" else synthetic(given.weights)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
