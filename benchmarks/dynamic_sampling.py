"""What dynamic and adaptive sampling are worth: held-out accuracy against the tokens that were generated for it.

    python benchmarks/dynamic_sampling.py [--steps 60] [--seeds 3] [--folder bench/dynamic-sampling] [--json]

The demo's model on rows of three kinds, a third each: easy (it solves all of them), medium (it has the bad habits that
can be unlearned) and impossible (no answer is ever right). Three ways to choose what is trained, from the same model:

    plain      every group is trained, whether its answers differ or not
    dynamic    groups whose answers are all alike are dropped and replaced (DAPO 3.2)
    adaptive   also, prompts come from where groups are kept ([filter] sampling = "signal")

Each way runs for the same number of learner steps, `plain` for more since its steps cost less to generate; they are
compared at the number of tokens that all have generated. Runs are full runs of the pipeline, one after the other: on
two cores about two minutes each. Writes curves.png and result.json beside the runs; what was run is not run again.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from services.cli.demo.arithmetic import problems
from services.cli.demo.prepare import prepare

ROWS_A_KIND = 999
WAYS: dict[str, list[str]] = {
    "plain": ["filter.dynamic_sampling=false"],
    "dynamic": [],
    "adaptive": ['filter.sampling="signal"', "filter.category=kind"],
}
PLAIN_FACTOR = 2
COLOURS = {"plain": "#6b7280", "dynamic": "#1f5fa8", "adaptive": "#d9731a"}
Curve = list[tuple[float, float]]
"""(tokens generated so far, held-out accuracy)."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare plain, dynamic and adaptive sampling.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("bench/dynamic-sampling"))
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    arguments = parser.parse_args()
    curves = measure(arguments.folder, steps=arguments.steps, seeds=range(arguments.seeds))
    result = summary(curves)
    (arguments.folder / "result.json").write_text(json.dumps(result, indent=2))
    plot(curves, arguments.folder / "curves.png")
    print(json.dumps(result) if arguments.json else table(result))


def measure(folder: Path, *, steps: int, seeds: Sequence[int]) -> dict[str, list[Curve]]:
    """The curves of every way, one per seed."""
    prepare("cache/demo-model", lambda *_: None)
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder)
    return {way: [run(folder, way, steps=steps, seed=seed) for seed in seeds] for way in WAYS}


def write_rows(folder: Path) -> None:
    """Training rows of three kinds, and held-out rows of the medium one."""
    train, held_out = problems()
    by_category: dict[str, list[dict[str, Any]]] = {}
    for problem in train:
        by_category.setdefault(problem.category, []).append(problem.row())
    easy = by_category.pop("add-plain")[:ROWS_A_KIND]
    medium = [row for rows in by_category.values() for row in rows[: ROWS_A_KIND // 3]]
    spare = [row for rows in by_category.values() for row in rows[ROWS_A_KIND // 3 :][: ROWS_A_KIND // 3]]
    impossible = [row | {"answer": "100000"} for row in spare]
    rows = [row | {"kind": kind} for kind, of_kind in
            (("easy", easy), ("medium", medium), ("impossible", impossible)) for row in of_kind]  # fmt: skip
    random.Random(0).shuffle(rows)
    write_lines(folder / "train.jsonl", rows)
    write_lines(folder / "held-out.jsonl", [p.row() for p in held_out if p.category != "add-plain"])


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def run(folder: Path, way: str, *, steps: int, seed: int) -> Curve:
    """One run of the pipeline, unless it is there."""
    name = f"{way}-{seed}"
    run_folder = folder / name
    steps *= PLAIN_FACTOR if way == "plain" else 1
    if not (run_folder / "done").exists():
        overrides = [
            f'run.name="{name}"', f'run.folder="{folder}"', f"run.seed={seed}", f"run.steps={steps}",
            f'filter.data="{folder / "train.jsonl"}"', f'filter.eval_data="{folder / "held-out.jsonl"}"',
            f"filter.eval_every={max(1, steps // 12)}", *WAYS[way],
        ]  # fmt: skip
        command = [sys.executable, "-m", "services.cli", "run", "--fresh", "configs/demo.toml", *overrides]
        subprocess.run(command, check=True, stdout=sys.stderr)
        (run_folder / "done").touch()
    return curve(run_folder)


def curve(run_folder: Path) -> Curve:
    """Accuracy by the training tokens that rollouts had sampled when the evaluated version was published."""
    published = {event["version"]: event["time"] for event in events(run_folder, "learner", "published")}
    sampled = sorted(
        (event["time"], sum(end - start for sample in event["spans"] for _, start, end in sample))
        for event in events(run_folder, "rollout", "sampled")
        if not event["id"].startswith("eval/")
    )
    rows = [json.loads(line) for line in (run_folder / "evals.jsonl").read_text().splitlines()]
    return [
        (float(sum(tokens for time, tokens in sampled if time <= published[row["version"]])), row["accuracy"])
        for row in rows
    ]


def events(run_folder: Path, role: str, event: str) -> list[dict[str, Any]]:
    """Of all processes of a role."""
    found = []
    for path in sorted((run_folder / "history").glob(f"{role}-*.msgpack")):
        with path.open("rb") as file:
            found += [record for record in msgpack.Unpacker(file, strict_map_key=False) if record["event"] == event]
    return found


def accuracy_at(curve: Curve, tokens: float) -> float:
    """Between two evaluations on a straight line."""
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 <= tokens <= x1:
            return y0 + (y1 - y0) * (tokens - x0) / (x1 - x0) if x1 > x0 else y1
    return curve[-1][1]


def summary(curves: dict[str, list[Curve]]) -> dict[str, Any]:
    """Accuracy at half and at all of the tokens that every run has generated."""
    budget = min(curve[-1][0] for of_way in curves.values() for curve in of_way)
    return {
        "tokens": budget,
        "ways": {
            way: {
                name: {"mean": statistics.mean(found), "each": found}
                for name, tokens in (("half", budget / 2), ("all", budget))
                for found in [[round(accuracy_at(curve, tokens), 4) for curve in of_way]]
            }
            for way, of_way in curves.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = [f"held-out accuracy of the medium kind after generating (of {result['tokens']:.0f} tokens)  half   all"]
    for way, found in result["ways"].items():
        lines.append(f"{way:>10}  {found['half']['mean']:.3f}  {found['all']['mean']:.3f}   {found['all']['each']}")
    return "\n".join(lines)


def plot(curves: dict[str, list[Curve]], path: Path) -> None:
    """Every run as a thin line, the mean of its way as a thick one."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    budget = min(curve[-1][0] for of_way in curves.values() for curve in of_way)
    grid = [budget * n / 40 for n in range(41)]
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axis = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
        for way, of_way in curves.items():
            each = [[accuracy_at(curve, x) for x in grid] for curve in of_way]
            for line in each:
                axis.plot(grid, line, color=COLOURS[way], linewidth=0.8, alpha=0.35)
            mean = [statistics.mean(at) for at in zip(*each, strict=True)]
            axis.plot(grid, mean, color=COLOURS[way], linewidth=2.2, label=f"{way} (mean of {len(of_way)})")
        axis.set_title("Held-out accuracy of the medium kind, by tokens generated for training", loc="left")
        axis.set(xlabel="response tokens sampled", ylim=(0, 1), xlim=(0, budget))
        axis.grid(axis="y", alpha=0.25)
        axis.legend(loc="lower right", frameon=False)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


if __name__ == "__main__":
    main()
