"""A small finished run as a folder, made by hand: numbers of a plausible shape, no training behind them.

Of every step four groups are trained and two dropped (one all right, one all wrong); the histories, metrics,
evaluations and texts agree with one another.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from common import config
from common.messages import ChatMessage, Group, Prompt, Sample, Sampling, Scored, Span, Task, Verdict
from services.cli.processes import read_sections
from services.filter.excerpts import Excerpts

START, STEP_S = 1_700_000_000.0, 2.0
GROUPS, SIZE = 4, 4


def make_run(folder: Path, *, steps: int = 12, text: str = "the answer is {}", **tables: dict[str, Any]) -> Path:
    """Write the folder; `tables` change the configuration. Returns it."""
    (folder / "logs").mkdir(parents=True)
    run = {"name": folder.name, "folder": str(folder.parent), "model": "tiny", "steps": steps,
           "groups_per_batch": GROUPS, "group_size": SIZE, "max_response_tokens": 16}  # fmt: skip
    given = {**tables, "run": run | tables.get("run", {}), "filter": {"data": "rows.jsonl"} | tables.get("filter", {})}
    config.write(folder / "config.toml", read_sections(config.Tree(path=folder, tables=given)))
    _lines(folder / "metrics.jsonl", [metrics(step, steps) for step in range(steps)])
    _lines(folder / "evals.jsonl", [evaluation(version, steps) for version in (0, steps // 2, steps)])
    _lines(folder / "sampling.jsonl", [categories(step) for step in range(steps)])
    stages = {
        name: {"busy": 3.0, "starved": 6.0, "blocked": 1.0} for name in ("rollout", "reward", "filter", "learner")
    }
    (folder / "stages.json").write_text(json.dumps(stages))
    warning = {"time": "2023-11-14T22:13:21.000Z", "level": "warning", "service": "filter-0", "event": "low keep rate"}
    _lines(folder / "logs" / "filter-0.jsonl", [warning])
    _history(folder, steps)
    excerpts = Excerpts(folder / "samples.jsonl", steps=steps, quota=2)
    for step in range(steps):
        excerpts.offer(scored(f"0/{step:06d}", step, text), step=step, reason=None)
    return folder


def metrics(step: int, steps: int) -> dict[str, float]:
    """The line of a step."""
    share = step / max(1, steps - 1)
    return {
        "step": step, "version": step + 1, "time": START + STEP_S * (step + 1), "accuracy": 0.3 + 0.4 * share,
        "reward": -0.4 + 0.8 * share, "reward_task": -0.3 + 0.8 * share, "reward_overlong": -0.1,
        "entropy": 1 - share / 2,
        "length_mean": 6 + share, "length_p95": 11.0, "truncated": 0.1, "age_mean": 0.5, "age_max": float(step > 0),
        "trained_tokens": 100.0, "tokens_per_second": 300.0, "clip_low": 0.001, "clip_high": 0.002, "rho_p99": 1.1,
        "rho_max": 1.4, "ess": 0.99, "mismatch_kl": 1e-4, "engine_difference": 1e-6, "grad_norm": 0.7, "loss": -0.01,
        "lr": 1e-6, "wait_seconds": 0.6, "train_seconds": 1.0, "publish_seconds": 0.2, "idle_share": 1 / 3,
        "filter_keep_rate": 2 / 3, "filter_recent_keep_rate": 0.6, "filter_issued": 6.0 * (step + 1),
        "filter_trained": 4.0 * step, "filter_dropped_all_correct": 1.0 * step, "filter_dropped_all_wrong": 1.0 * step,
    }  # fmt: skip


def evaluation(version: int, steps: int) -> dict[str, Any]:
    """A line of evals.jsonl."""
    accuracy = 0.25 + 0.5 * version / steps
    return {"version": version, "accuracy": accuracy, "rows": 8, "samples": 1, "errors": 0, "dead": 0,
            "pass@2": accuracy + 0.1, "time": START + STEP_S * version}  # fmt: skip


def categories(step: int) -> dict[str, Any]:
    """A line of sampling.jsonl, of two categories."""
    one = {"probability": 0.7, "draws": 4, "judged": 4, "kept": 3, "answers": 16, "correct": 9}
    two = {"probability": 0.3, "draws": 2, "judged": 2, "kept": 1, "answers": 8, "correct": 2}
    return {"step": step, "stage": "explore" if step < 6 else "exploit", "temperature": 1.0, "least_share": 0.05,
            "categories": {"sums": one, "products": two}}  # fmt: skip


def scored(name: str, step: int, text: str) -> Scored:
    """A group with a right, a wrong, a cut and an unjudged answer."""
    prompt = Prompt(id=name, row=1, chat=[ChatMessage(role="user", content="1 < 2 & 3?")], min_version=step,
                    task=Task(verifier="math", gold="2", data_source="sums"),
                    sampling=Sampling(n=SIZE, temperature=1.0, max_tokens=16, seed=0))  # fmt: skip
    span = [Span(version=step, start=0, end=5)]
    samples = [Sample(num_tokens=5, finish=finish, spans=span, text=text.format(place))  # type: ignore[arg-type]
               for place, finish in enumerate(("stop", "stop", "length", "stop"))]  # fmt: skip
    verdicts = [Verdict(verdict="correct", score=1.0), Verdict(verdict="wrong"), Verdict(verdict="wrong"),
                Verdict(verdict="error", reason="timeout")]  # fmt: skip
    terms = [{"task": 1.0}, {"task": -1.0}, {"task": -1.0, "overlong": -0.5}, {}]
    return Scored(group=Group(prompt=prompt, samples=samples), verdicts=verdicts, terms=terms)


def _history(folder: Path, steps: int) -> None:
    """The events of every process; step k's groups live in the two seconds before its end."""
    events: dict[str, list[dict[str, Any]]] = {name: [] for name in ("filter-0", "rollout-0", "reward-0", "learner-0")}
    for step in range(steps):
        start = START + STEP_S * step
        names = [f"0/{6 * step + k:06d}" for k in range(6)]
        for k, name in enumerate(names):
            _group(events, name, step, start, right=(2, 1, 3, 2, SIZE, 0)[k], length=5 + k)
        ids, tx = names[:GROUPS], 10 * step + 5
        events["filter-0"] += [
            {
                "event": "settled",
                "time": start + 1.0,
                "tx": tx,
                "id": names[4],
                "fate": "dropped",
                "reason": "all_correct",
            },
            {
                "event": "settled",
                "time": start + 1.0,
                "tx": tx,
                "id": names[5],
                "fate": "dropped",
                "reason": "all_wrong",
            },
            {"event": "batched", "time": start + 1.0, "tx": tx, "step": step, "ids": ids, "oldest": step},
        ]
        events["learner-0"].append({"event": "trained", "time": start + 1.9, "step": step, "ids": ids, "oldest": step,
                                    "tokens": 100})  # fmt: skip
        events["learner-0"].append({"event": "published", "time": start + 2.0, "version": step + 1, "digest": "d"})
    for name, records in events.items():
        path = folder / "history" / f"{name}-{1:020d}.msgpack"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(map(msgspec.msgpack.encode, records)))


def _group(
    events: dict[str, list[dict[str, Any]]], name: str, step: int, start: float, *, right: int, length: int
) -> None:
    events["filter-0"].append({"event": "issued", "time": start, "tx": 10 * step + 1, "id": name, "min_version": step})
    spans = [[[step, 0, length]]] * SIZE
    events["rollout-0"].append({"event": "sampled", "time": start + 0.5, "id": name, "spans": spans, "seconds": 0.4})
    events["reward-0"].append({"event": "scored", "time": start + 0.7, "id": name, "correct": right,
                               "wrong": SIZE - right, "error": 0, "seconds": 0.1})  # fmt: skip


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + os.linesep for row in rows), encoding="utf-8")
