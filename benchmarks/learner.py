"""The learner's step against a plain one and against TRL's, side by side: tokens/s, peak memory, share of the peak.

    python benchmarks/learner.py [--repeats 3] [--threads 2] [--json]          needs trl: pip install trl==1.16.0

    ours     services/learner/step.py: packed samples, chunked logits
    naive    Hugging Face model, micro-batches padded to their longest sample, full logits, the same DAPO loss
    trl      GRPOTrainer.train with loss_type "dapo"; only the generation is replaced, by the given tokens

One batch for all: the model (SmolLM2-135M: 49,152 words), the prompts, the responses with a long tail of lengths
(lognormal), the number of samples, float32, AdamW, one optimizer step. Each measurement is a process of its own, so its
peak memory is its own; the three alternate, and ratios are of medians. Tokens are prompt and response tokens without
padding, over the seconds of a whole step. For the naive step and TRL the fastest of several micro-batch sizes counts.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
MODEL = ROOT / "cache" / "benchmarks" / "smollm2"
GROUP_SIZE, NUM_GROUPS = 8, 2
MEDIAN, SIGMA, LONGEST = 100, 1.0, 768
"""Response tokens: the quantiles of a lognormal distribution, shuffled; none is longer than `LONGEST`."""


class Case(NamedTuple):
    """The batch."""

    prompts: list[list[int]]
    responses: list[list[int]]
    advantages: list[float]

    @property
    def tokens(self) -> int:
        """Prompt and response tokens."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))


def make_case(seed: int = 0) -> Case:
    """The same batch in every process."""
    rng = np.random.default_rng(seed)
    count = GROUP_SIZE * NUM_GROUPS
    normal = statistics.NormalDist(math.log(MEDIAN), SIGMA)
    quantiles = [math.exp(normal.inv_cdf((place + 0.5) / count)) for place in range(count)]
    lengths = rng.permutation(np.minimum(quantiles, LONGEST).astype(int))
    prompts = [rng.integers(20, 40_000, int(n)).tolist() for n in rng.integers(40, 100, NUM_GROUPS)]
    return Case(
        prompts=[prompts[place // GROUP_SIZE] for place in range(count)],
        responses=[rng.integers(20, 40_000, int(n)).tolist() for n in lengths],
        advantages=[1.0 if place % 2 else -1.0 for place in range(count)],
    )


def load_model() -> Any:
    """SmolLM2-135M in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


def ours(case: Case, micro_batch: int) -> tuple[Callable[[], None], Callable[[], dict[str, float]]]:
    """A step of the learner, and what it says of its speed. `micro_batch` is in tokens."""
    import torch

    from services.learner.config import LearnerConfig
    from services.learner.model import Policy
    from services.learner.optimizer import Optimizer
    from services.learner.samples import TrainSample
    from services.learner.speed import FlopCount, matmul_peak
    from services.learner.step import Trainer

    config = LearnerConfig(micro_batch_tokens=micro_batch, warmup_steps=0)
    policy = Policy(load_model().eval(), temperature=1.0)
    trainer = Trainer(policy, Optimizer(policy.trained_parameters(), config), config, max_tokens=LONGEST)
    samples = [
        TrainSample(
            group=place // GROUP_SIZE, prompt_P=np.array(prompt, dtype=np.int32),
            response_T=np.array(response, dtype=np.int32), mu_logp_T=np.full(len(response), -10.8, dtype=np.float32),
            version_T=np.zeros(len(response), dtype=np.int64), mask_T=np.ones(len(response), dtype=bool),
            advantage=advantage,
        )
        for place, (prompt, response, advantage) in enumerate(zip(*case, strict=True))
    ]  # fmt: skip
    seconds: dict[str, float] = {}

    def step() -> None:
        seconds.update(trainer.step(samples, step=0, num_groups=NUM_GROUPS).seconds)

    def speed() -> dict[str, float]:
        passes = seconds["forward"] + seconds["backward"]
        flops = FlopCount(policy).step(samples) / passes
        peak = matmul_peak(policy.device, torch.float32)
        return {"matmul_share": flops / peak, "gflops": flops / 1e9, "peak_gflops": peak / 1e9}

    return step, speed


def naive(case: Case, micro_batch: int) -> tuple[Callable[[], None], Callable[[], dict[str, float]]]:
    """A step as one would write it first. `micro_batch` is in samples."""
    import torch

    model = load_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.1)
    total = sum(map(len, case.responses))

    def loss_of(places: Sequence[int]) -> Any:
        width = max(len(case.prompts[i]) + len(case.responses[i]) for i in places)
        ids, mask, trained = (torch.zeros(len(places), width, dtype=torch.long) for _ in "abc")
        for row, i in enumerate(places):
            start, end = len(case.prompts[i]), len(case.prompts[i]) + len(case.responses[i])
            ids[row, :end] = torch.tensor(case.prompts[i] + case.responses[i])
            mask[row, :end], trained[row, start:end] = 1, 1
        logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
        logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        ratio = (logp - logp.detach()).exp()
        advantage = torch.tensor([case.advantages[i] for i in places])[:, None]
        surrogate = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.28))
        return (surrogate * trained[:, 1:]).sum() / total

    def step() -> None:
        optimizer.zero_grad()
        for at in range(0, len(case.prompts), micro_batch):
            loss_of(range(len(case.prompts))[at : at + micro_batch]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step, dict


def trl(case: Case, micro_batch: int) -> tuple[Callable[[], None], Callable[[], dict[str, float]]]:
    """Steps of TRL's own trainer on the given tokens. `micro_batch` is in samples."""
    import warnings

    warnings.simplefilter("ignore")
    import tempfile

    import torch
    from datasets import Dataset
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    count = len(case.prompts)

    def padded(rows: Sequence[Sequence[int]], side: str) -> tuple[Any, Any]:
        parts = [torch.tensor(row) for row in rows]
        ids = pad_sequence(parts, batch_first=True, padding_side=side)
        return ids, pad_sequence([torch.ones_like(part) for part in parts], batch_first=True, padding_side=side)

    class Given(GRPOTrainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            prompt_ids, prompt_mask = padded(case.prompts, "left")
            completion_ids, completion_mask = padded(case.responses, "right")
            return {
                "prompt_ids": prompt_ids, "prompt_mask": prompt_mask, "completion_ids": completion_ids,
                "completion_mask": completion_mask, "advantages": torch.tensor(case.advantages),
                "num_items_in_batch": completion_mask.sum(),
            }  # fmt: skip

    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(), max_steps=1, use_cpu=not torch.cuda.is_available(), bf16=False,
        per_device_train_batch_size=micro_batch, gradient_accumulation_steps=count // micro_batch,
        num_generations=GROUP_SIZE, generation_batch_size=count, max_completion_length=LONGEST, loss_type="dapo",
        epsilon=0.2, epsilon_high=0.28, beta=0.0, learning_rate=1e-6, weight_decay=0.1, max_grad_norm=1.0,
        gradient_checkpointing=False, disable_dropout=True, report_to="none", save_strategy="no", disable_tqdm=True,
        logging_strategy="no",
    )  # fmt: skip
    trainer = Given(
        model=load_model(), reward_funcs=lambda completions, **_: [0.0] * len(completions), args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["?"] * count}),
        processing_class=AutoTokenizer.from_pretrained(MODEL, padding_side="left"),
    )  # fmt: skip

    def step() -> None:
        trainer.state.global_step = 0
        trainer.train()

    return step, dict


STEPS = {"ours": ours, "naive": naive, "trl": trl}


def child(name: str, micro_batch: int, threads: int) -> None:
    """One measurement: a step to warm up, then one that counts."""
    import torch

    torch.set_num_threads(threads)
    case = make_case()
    step, speed = STEPS[name](case, micro_batch)
    step()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"tokens_per_second": case.tokens / seconds, "peak_mib": peak, **speed()}
    print(json.dumps(figures))


def measure(name: str, micro_batch: int, threads: int) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--child", name, "--micro-batch", str(micro_batch), "--threads", str(threads)]
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    result = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise SystemExit(f"the measurement `{name}` failed; its message is above")
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    print(f"{name:6} {micro_batch:6} {figures}", file=sys.stderr, flush=True)
    return figures


def side_by_side(
    names: Sequence[str], *, repeats: int, threads: int, budget: int, peer_sizes: Sequence[int]
) -> dict[str, Any]:
    """Alternate the measurements; medians, and ours against each of the others."""
    sizes = {name: budget if name == "ours" else peer_sizes[0] for name in names}
    for name in names:
        if name != "ours" and len(peer_sizes) > 1:
            sizes[name] = max(peer_sizes, key=lambda size: measure(name, size, threads)["tokens_per_second"])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            runs[name].append(measure(name, sizes[name], threads))
    medians = {
        name: {key: statistics.median(run[key] for run in found) for key in found[0]} for name, found in runs.items()
    }
    mine = medians["ours"]
    ratios = {
        f"ours_to_{name}": {
            "tokens_per_second": mine["tokens_per_second"] / other["tokens_per_second"],
            "peak_memory": mine["peak_mib"] / other["peak_mib"],
        }
        for name, other in medians.items()
        if name != "ours"
    }
    return {"ratios": ratios, "medians": medians, "micro_batch": sizes}


def main() -> int:
    """Measure all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--budget", type=int, default=512, help="tokens in a micro-batch of ours")
    parser.add_argument(
        "--peer-sizes",
        nargs="+",
        type=int,
        default=[4, 8],
        help="samples in a micro-batch of the others; 1 size: no trial",
    )
    parser.add_argument("--against", nargs="*", default=["naive", "trl"], choices=["naive", "trl"])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--child", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--micro-batch", type=int, default=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.micro_batch, arguments.threads)
        return 0
    if not MODEL.exists():
        from services.cli.demo.smollm2 import convert

        convert(MODEL, sources=[])
    case = make_case()
    lengths = sorted(map(len, case.responses))
    figures = side_by_side(
        ["ours", *arguments.against],
        repeats=arguments.repeats,
        threads=arguments.threads,
        budget=arguments.budget,
        peer_sizes=arguments.peer_sizes,
    )
    figures["settings"] = {
        "samples": len(lengths), "tokens": case.tokens, "response_median": statistics.median(lengths),
        "response_max": lengths[-1], "threads": arguments.threads, "repeats": arguments.repeats,
    }  # fmt: skip
    print(json.dumps(figures, indent=None if arguments.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
