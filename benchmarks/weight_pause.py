"""How long requests in flight wait when a version is loaded under them, in decode steps beyond the loading itself.

    python benchmarks/weight_pause.py MODEL [--requests 8] [--tokens 160]

MODEL is a Hugging Face folder. A version with 0.4 % of its bf16 values changed is prepared beside sampling and loaded
while all requests are being answered; the engine prefills them again under the new weights. One JSON object on stdout,
seconds.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import weights
from common.config import RunConfig
from common.messages import Policy as Announced
from services.rollout.__main__ import set_environment
from services.rollout.config import RolloutConfig
from services.rollout.hostcopy import HostCopy

LOADS = 5
SHARE = 0.004


class Learner:
    """Publishes versions of a model of which some values change."""

    def __init__(self, model: str, store: Path) -> None:
        import torch

        from services.learner.config import LearnerConfig
        from services.learner.model import Policy
        from services.learner.publisher import Publisher
        from services.learner.ranks import World

        self.store = store
        self.policy = Policy.load(model, temperature=1.0, config=LearnerConfig())
        self.publisher = Publisher(
            policy=self.policy, world=World(), store=store, dtype=torch.bfloat16, snapshot_every=1000
        )
        self.version = -1

    def publish(self) -> Announced:
        """The next version."""
        import torch

        with torch.no_grad():
            for parameter in self.policy.named_parameters().values():
                parameter.mul_(1 + 0.01 * (torch.rand_like(parameter) < SHARE))
        self.version += 1
        manifest = self.publisher.publish(self.version)
        assert manifest is not None
        folder = weights.version_folder(self.store, self.version)
        return Announced(version=self.version, digest=manifest.digest, path=str(folder))


async def measure(model: str, requests: int, tokens: int) -> dict[str, float]:
    from services.rollout.vllm_engine import VllmEngine

    run = RunConfig(name="p", model=model, max_prompt_tokens=64, max_response_tokens=tokens)
    engine = await VllmEngine.start(run, RolloutConfig(dtype="bfloat16", kv_cache_gib=1.0), stop_token_ids=[])
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        learner, copy = Learner(model, Path(folder)), HostCopy()
        for _ in range(2):  # a snapshot, and the delta that builds the copy
            announced = learner.publish()
            await engine.load(announced.version, copy.prepare(announced))
        for _ in range(LOADS):
            rows.append(await one(engine, learner.publish(), copy, requests, tokens))
    engine.close()
    found = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    found["most_steps_beyond_load"] = max(row["steps_beyond_load"] for row in rows)
    return found


async def one(engine: Any, announced: Announced, copy: HostCopy, requests: int, tokens: int) -> dict[str, float]:
    """Load one version in the middle of the answers."""
    times: list[list[float]] = [[] for _ in range(requests)]
    under_way = asyncio.Barrier(requests + 1)
    tasks = [
        asyncio.create_task(
            answer(engine, f"{announced.version}/{n}", place=n, tokens=tokens, times=times[n], under_way=under_way)
        )
        for n in range(requests)
    ]
    await under_way.wait()
    start = time.perf_counter()
    tensors = await asyncio.to_thread(copy.prepare, announced)
    prepared = time.perf_counter()
    await engine.load(announced.version, tensors)
    end = time.perf_counter()
    await asyncio.gather(*tasks)
    gaps = [[b - a for a, b in itertools.pairwise(row)] for row in times]
    step = statistics.median(gap for row in gaps for gap in row)
    longest = max(max(row) for row in gaps)
    load = end - prepared
    return {
        "decode_step_s": step, "prepare_s": prepared - start, "load_s": load, "longest_gap_s": longest,
        "steps_beyond_load": (longest - load) / step,
    }  # fmt: skip


async def answer(
    engine: Any, name: str, *, place: int, tokens: int, times: list[float], under_way: asyncio.Barrier
) -> None:
    """One request; when each of its tokens came."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        temperature=1.0, max_tokens=tokens, seed=place, ignore_eos=True, detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )  # fmt: skip
    async for _ in engine._engine.generate(
        {"prompt_token_ids": list(range(100 + place, 132 + place))}, parameters, name
    ):
        times.append(time.perf_counter())
        if len(times) == tokens // 4:
            waiting = asyncio.create_task(under_way.wait())
    await waiting


def main() -> None:
    parser = argparse.ArgumentParser(description="Pause of requests in flight when a version is loaded.")
    parser.add_argument("model", help="Hugging Face folder")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=160)
    given = parser.parse_args()
    set_environment(given.model)
    print(json.dumps(asyncio.run(measure(given.model, given.requests, given.tokens)), indent=1))


if __name__ == "__main__":
    main()
