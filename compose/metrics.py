"""docs/metrics.md, from the source files that define metrics; nothing of them is imported.

module -> every NAME = Counter|Gauge|Histogram(name, help, labels) -> one row of its service's table
"""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROLES = {
    "common": "Every service",
    "services/broker": "Broker",
    "services/rollout": "Rollout",
    "services/reward": "Reward",
    "services/filter": "Filter",
    "services/learner": "Learner",
}
KINDS = ("Counter", "Gauge", "Histogram")
HEAD = """# Metrics

Generated from the code by `python compose/generate.py`; a test fails while this page is not current.

Every service shows its metrics on its port (`[ROLE] metrics_port`, `metrics_host`), and on `/healthz` whether its loops
turn: 200 `well`, or 503 and which loop has been silent for how long. A rollout's port also shows vLLM's own metrics
(`vllm:*`, see [vLLM's documentation](https://docs.vllm.ai/en/stable/usage/metrics.html)).

Units are base units; counters end in `_total`; `_ratio` is a share from 0 to 1. Labels have few values, those of the
configuration or of the code, except `category`, which has those of the data.

Recording rules and alerts are in `compose/prometheus/rules`; [runbook.md](runbook.md) says what to do about each alert.
"""
TABLE = "| metric | type | labels | what | where |\n|---|---|---|---|---|\n"
STEP = """## The numbers of a step

`dapo_learner_value{name=...}` shows the newest line of `metrics.jsonl`:
"""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One definition."""

    name: str
    kind: str
    text: str
    labels: list[str]
    source: str


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for folder, title in ROLES.items():
        rows = sorted(metrics_in(ROOT / folder), key=lambda metric: metric.name)
        parts.append(f"## {title}\n\n| metric | type | labels | what | where |\n|---|---|---|---|---|\n" + table(rows))
    parts.append(
        "## The numbers of a step\n\n`dapo_learner_value{name=...}` shows the newest line of `metrics.jsonl`:\n"
    )
    for module in ("services/learner/report.py", "services/learner/tally.py"):
        parts.append(f"```\n{names_of_step(ROOT / module)}\n```\n")
    return "\n".join(parts)


def table(metrics: list[Metric]) -> str:
    """Rows of a table in Markdown."""
    return "".join(
        f"| `{metric.name}` | {metric.kind.lower()} | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.text} | `{metric.source}` |\n"
        for metric in metrics
    )


def metrics_in(folder: Path) -> Iterator[Metric]:
    """Every metric that a module of the folder defines."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            call = getattr(node, "value", None)
            if isinstance(node, ast.Assign) and isinstance(call, ast.Call) and getattr(call.func, "id", "") in KINDS:
                values = [evaluated(argument, path) for argument in call.args]
                name, text, *labels = values
                yield Metric(
                    name=str(name), kind=ast.unparse(call.func), text=str(text).replace("|", "\\|"),
                    labels=list(labels[0]) if labels else [], source=str(path.relative_to(ROOT)),
                )  # fmt: skip


def evaluated(node: ast.expr, path: Path) -> object:
    """A constant of the module, a list of them, or a text with constants in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(evaluated(part, path)) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return evaluated(node.value, path)
    if isinstance(node, ast.Name):
        return constant(node.id, path)
    return ast.literal_eval(node)


def constant(name: str, path: Path) -> object:
    """What a name stands for: in its module, or in the one that it is imported from."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and name in [getattr(target, "id", "") for target in node.targets]:
            return evaluated(node.value, path)
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return constant(name, ROOT / f"{node.module.replace('.', '/')}.py")
    raise ValueError(f"{path} has no constant {name}")


def names_of_step(path: Path) -> str:
    """The list of names in the docstring of a module: from its first line with two columns on."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if "   " in line.strip())
    return textwrap.dedent("\n".join(lines[first:]))
