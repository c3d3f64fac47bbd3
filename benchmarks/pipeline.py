"""How close the pipeline comes to its slowest stage, by max_staleness; what becomes of slow answers.

    dapo bench pipeline [--steps 60] [--etas 0,1,2,4,8] [--folder bench/pipeline]
                        [--json]

The real broker, filter, rollout, reward and learner services with scripted stage times (scripted.py): 8 replicas of 4
groups, one prompt in ten takes 20 times as long as the others, half of the groups are kept. For every eta:

    efficiency      steps a second / those of a pipeline whose slowest stage never waits
    mean_age, greatest_age      of the trained tokens, in versions; the audit checks the bound
    stale           groups dropped for their age: none, by construction (docs/ages-and-batches.md)
    same_groups     whether exactly the groups that were kept and had to be trained by the end were trained
    ks_distance, ks_p      Kolmogorov-Smirnov between the lengths of trained groups and of all groups to be kept

Beside them `drop_ETA`, the same with on_stale = "drop": what dropping by age does to the lengths that are trained; and
`synchronous`, a loop that generates, verifies and trains in turn over the same scripted times, without any overhead.

Predicted: a prompt issued with version s must be trained at step s + eta, so eta + 1 steps take at least as long as the
slowest answer, its verification and its step. The knee is the least eta at which that does not hold up the slowest
stage:      steps a second <= min(ideal, (eta + 1) / (T_slow + T_verify + T_step))
"""

import argparse
import asyncio
import heapq
import itertools
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import ks_2samp

from benchmarks.scripted import Outcome, Script, run
from services.cli.audit.ledger import read_ledger
from services.cli.audit.reading import read_queues, read_streams

SKIP = 10
"""First steps, in which the pipeline fills."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the pipeline with scripted stage times.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--etas", default="0,1,2,4,8", help="max_staleness, separated by commas")
    parser.add_argument("--drop", default="4", help="max_staleness of the runs that drop by age; may be empty")
    parser.add_argument("--speed", type=float, default=1.0, help="divides all times")
    parser.add_argument("--folder", type=Path, default=Path("bench/pipeline"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    usual = Script()
    script = Script(
        token_s=usual.token_s / arguments.speed, verify_s=usual.verify_s / arguments.speed,
        step_s=usual.step_s / arguments.speed,
    )  # fmt: skip
    etas, drops = ([int(part) for part in text.split(",") if part] for text in (arguments.etas, arguments.drop))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    result = asyncio.run(measure(script, arguments.folder, steps=arguments.steps, etas=etas, drops=drops))
    (arguments.folder / "result.json").write_text(json.dumps(result, indent=2))
    plot(script, result, arguments.folder / "pipeline.png")
    lines = [f"{name:>18}  {value}" for name, value in result.items()]
    print(json.dumps(result) if arguments.json else "\n".join(lines))


async def measure(
    script: Script, folder: Path, *, steps: int, etas: Sequence[int], drops: Sequence[int]
) -> dict[str, Any]:
    """The figures of all runs."""
    result: dict[str, Any] = {
        "steps": steps, "rates": script.rates, "ideal": script.ideal,
        "synchronous": {"efficiency": synchronous(script, steps=steps) / script.ideal},
        "knee_predicted": knee(script),
    }  # fmt: skip
    for name, keys in [(f"eta_{eta}", {"max_staleness": eta}) for eta in etas] + [
        (f"drop_{eta}", {"max_staleness": eta, "on_stale": "drop"}) for eta in drops
    ]:
        outcome = await run(script, folder, steps=steps, limit_s=60 + 3 * steps * script.longest_generate_s, **keys)
        result[name] = figures(script, outcome, steps=steps, eta=int(str(keys["max_staleness"])))
        print(f"[pipeline] {name}: {result[name]}", file=sys.stderr)
    return result


def figures(script: Script, outcome: Outcome, *, steps: int, eta: int) -> dict[str, Any]:
    """What a run shows; raises if its audit does not pass."""
    command = [sys.executable, "-m", "services.cli", "audit", str(outcome.folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ledger = read_ledger(read_streams(outcome.folder), read_queues(outcome.folder).registers["filter"])
    due = {name for name, version in ledger.min_version.items() if version + eta < steps}
    kept, trained = {name for name in due if script.is_kept(name)}, due & set(outcome.trained)
    test = ks_2samp(*([max(script.lengths(name)) for name in sorted(names)] for names in (kept, trained)))
    rate = outcome.steps_per_second(skip=min(SKIP, steps // 2))
    return {
        "efficiency": rate / script.ideal, "predicted": predicted(script, eta) / script.ideal,
        "mean_age": statistics.fmean(outcome.ages), "greatest_age": max(outcome.ages),
        "stale": sum(reasons.count("stale") for reasons in ledger.dropped.values()),
        "same_groups": kept == trained, "ks_distance": float(test.statistic), "ks_p": float(test.pvalue),
    }  # fmt: skip


def predicted(script: Script, eta: int) -> float:
    """Steps a second, by the formula of the module."""
    slowest_s = script.longest_generate_s + script.verify_s + script.step_s
    return min(script.ideal, (eta + 1) / slowest_s)


def knee(script: Script) -> int:
    """Least eta at which the slowest answers hold up nobody, by the formula of the module."""
    return next(eta for eta in itertools.count() if predicted(script, eta) >= script.ideal)


def synchronous(script: Script, *, steps: int) -> float:
    """Steps a second of a loop: generate as many groups as are likely needed, until a batch is kept; verify; train."""
    seconds, names = 0.0, map(str, itertools.count())
    for _ in range(steps):
        missing = script.groups_per_batch
        while missing > 0:
            wave = list(itertools.islice(names, math.ceil(missing / script.keep)))
            seconds += _makespan(script, wave)
            seconds += script.verify_s * math.ceil(len(wave) * script.group_size / script.verifiers)
            missing -= sum(map(script.is_kept, wave))
        seconds += script.step_s
    return steps / seconds


def _makespan(script: Script, names: Sequence[str]) -> float:
    """Seconds until all are generated, each by the slot that is free first."""
    slots = [0.0] * (script.replicas * script.slots)
    for name in names:
        heapq.heapreplace(slots, slots[0] + script.generate_s(name))
    return max(slots)


def plot(script: Script, result: dict[str, Any], path: Path) -> None:
    """Efficiency and age against eta, with the prediction and the synchronous loop."""
    from matplotlib.figure import Figure

    by_eta = {int(name.removeprefix("eta_")): value for name, value in result.items() if name.startswith("eta_")}
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    fine = range(max(by_eta) + 1)
    left.plot(
        fine, [predicted(script, eta) / script.ideal for eta in fine], color="#9aa5b1", ls="--", label="predicted"
    )
    left.plot(list(by_eta), [value["efficiency"] for value in by_eta.values()], "o-", color="#1f5fa8", label="measured")
    left.axhline(result["synchronous"]["efficiency"], color="#d9731a", lw=1.2, label="synchronous loop")
    left.axvline(result["knee_predicted"], color="#9aa5b1", lw=0.8, ls=":")
    left.annotate("knee", (result["knee_predicted"], 0.03), xytext=(4, 0), textcoords="offset points", color="#6b7280")
    left.set(xlabel="max_staleness", ylabel="share of the ideal throughput", ylim=(0, 1.08))
    right.plot(
        list(by_eta), [value["greatest_age"] for value in by_eta.values()], "o-", color="#d98c8c", label="greatest"
    )
    right.plot(list(by_eta), [value["mean_age"] for value in by_eta.values()], "o-", color="#1f5fa8", label="mean")
    right.set(xlabel="max_staleness", ylabel="age of the trained tokens, versions")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
