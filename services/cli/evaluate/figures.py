"""What an evaluation found: one flat object for a program, a table for a person."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from common.config import RunConfig
from common.messages import Policy
from services.filter.config import FilterConfig
from services.filter.evaluation import measures, sampling
from services.filter.state import EvalTally


def figures(
    run: RunConfig, config: FilterConfig, policy: Policy, tally: EvalTally, *, seconds: float
) -> dict[str, Any]:
    """The measures, what they leave out, and the settings they depend on."""
    asked = sampling(run, config, 0)
    return {
        "model": run.model, "step": policy.version, "data": config.eval_data or f"{config.eval_rows} rows held out",
        "rows": tally.rows, "samples": asked.n, "temperature": asked.temperature, "max_tokens": asked.max_tokens,
        "seed": run.seed, **measures(tally), "pass_rows": tally.ranked, "errors": tally.errors,
        "dead": len(tally.dead), "seconds": seconds, "digest": policy.digest,
    }  # fmt: skip


def table(found: Mapping[str, Any]) -> Table:
    """The figures for a person."""
    title = f"{found['model']} step {found['step']}: {found['rows']} rows, {found['samples']} answers each"
    view = Table("measure", "value", title=title, title_justify="left")
    for key in [key for key in found if key.startswith(("avg@", "pass@"))]:
        view.add_row(key, f"{found[key]:.4f}{_basis(key, found)}")
    view.add_row("temperature", str(found["temperature"]))
    view.add_row("answers without a verdict, left out", str(found["errors"]))
    view.add_row("rows that were not answered, left out", str(found["dead"]))
    view.add_row("seconds", f"{found['seconds']:.0f}")
    return view


def emptiness(tally: EvalTally) -> str:
    """Why there is nothing to show; empty if there is."""
    if tally.judged:
        return ""
    return f"no answer could be judged: {tally.errors} without a verdict, {len(tally.dead)} rows not answered"


def _basis(key: str, found: Mapping[str, Any]) -> str:
    """On how many rows a pass@k rests, if not on all."""
    rows = found["pass_rows"][int(key.removeprefix("pass@"))] if key.startswith("pass@") else found["rows"]
    return "" if rows == found["rows"] else f" (of {rows} rows)"
