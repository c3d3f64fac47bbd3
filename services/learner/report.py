"""Numbers of a batch before it is trained, and where the numbers of a step go: metrics.jsonl and Prometheus.

reward, reward_TERM, accuracy         over survivors
length_mean, length_p95, length_max   response tokens that were sampled
length_trained_mean                   response tokens that are trained, per sample: the length-bias monitor
truncated                             share of survivors cut at the length limit
no_behaviour_logp                     tokens that the engine gave no log-probability for: not trained
tokens_per_second, flops, matmul_share   of a step's training: prompt and response tokens, FLOP/s of the model's forward
                                      and backward pass, and their share of the measured peak of matrix products
seconds_PHASE                         forward, backward, optimizer, and the reference and proximal passes
age_mean, age_p99, age_max            of trained tokens, in versions
filter_*                              the filter's account when the batch closed
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from prometheus_client import Gauge

from common.messages import Batch
from services.learner.samples import TrainSample, shaped_rewards, survivors

VALUE = Gauge("dapo_learner_value", "Numbers of the newest step, by their name in metrics.jsonl.", ["name"])
STEP = Gauge("dapo_learner_step", "Batches trained.")


def batch_metrics(batch: Batch, samples: Sequence[TrainSample]) -> dict[str, float]:
    """Rewards, accuracy, lengths and ages of a batch."""
    alive = [(scored, index) for scored in batch.groups for index in survivors(scored)]
    lengths = [float(scored.group.samples[index].num_tokens) for scored, index in alive]
    ages = [batch.step - sample.version_T[sample.mask_T] for sample in samples]
    ages_N = np.concatenate(ages) if ages else np.zeros(0)
    terms: defaultdict[str, list[float]] = defaultdict(list)
    for scored, index in alive:
        for name, value in scored.terms[index].items():
            terms[name].append(value)
    return {
        "reward": _mean([reward for scored in batch.groups for reward in shaped_rewards(scored)]),
        **{f"reward_{name}": _mean(values) for name, values in sorted(terms.items())},
        "accuracy": _mean([scored.verdicts[index].score for scored, index in alive]),
        "length_mean": _mean(lengths),
        "length_p95": float(np.percentile(lengths, 95)) if lengths else 0.0,
        "length_max": max(lengths, default=0.0),
        "length_trained_mean": _mean([float(sample.mask_T.sum()) for sample in samples]),
        "no_behaviour_logp": float(sum(int(np.isnan(sample.mu_logp_T).sum()) for sample in samples)),
        "tokens": float(sum(sample.length for sample in samples)),
        "truncated": _mean([float(scored.group.samples[index].finish == "length") for scored, index in alive]),
        "age_mean": float(ages_N.mean()) if ages_N.size else 0.0,
        "age_p99": float(np.percentile(ages_N, 99)) if ages_N.size else 0.0,
        "age_max": float(ages_N.max()) if ages_N.size else 0.0,
        **{f"filter_{name}": value for name, value in batch.totals.items()},
    }


def speed_metrics(
    tokens: float, seconds: float, phases: Mapping[str, float], *, flops: float, peak: float
) -> dict[str, float]:
    """Rates of a step of that many seconds; `flops` of one forward and backward pass, `peak` in FLOP/s."""
    passes = max(1e-9, phases.get("forward", 0.0) + phases.get("backward", 0.0))
    return {
        "tokens_per_second": tokens / max(1e-9, seconds),
        "flops": flops / passes,
        "matmul_share": flops / passes / peak,
        **{f"seconds_{phase}": value for phase, value in phases.items()},
    }


class MetricsFile:
    """RUN/metrics.jsonl: one flat JSON object per step; steps from `step` on are dropped when a run resumes there."""

    def __init__(self, path: Path, *, step: int) -> None:
        kept = []
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) < step]
        partial = path.with_suffix(".partial")
        partial.write_text("".join(f"{line}\n" for line in kept))
        os.replace(partial, path)  # a kill must not take the lines with it
        self._file = path.open("a", buffering=1)

    def append(self, metrics: dict[str, float]) -> None:
        """Write one step and show it on /metrics."""
        self._file.write(json.dumps({k: round(v, 9) for k, v in metrics.items()}) + "\n")
        for name, value in metrics.items():
            VALUE.labels(name).set(value)
        STEP.set(metrics["step"] + 1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _step_of(line: str) -> float:
    """The step of a line; a torn line counts as never written."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return float(np.mean(values)) if values else 0.0
