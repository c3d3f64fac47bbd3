"""The page: sections in their order, style and script inside, nothing loaded from anywhere."""

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from services.cli.report import ages, dropping, head, learning, numerics, pipeline, sampler, settings, texts
from services.cli.report.curves import names
from services.cli.report.record import Record

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
Section = Callable[[Sequence[Record]], str]
GRID: tuple[tuple[str, str, Section], ...] = (
    ("learning", "Learning", learning.section),
    ("pipeline", "Throughput and bottleneck", pipeline.section),
    ("ages", "Ages", ages.ages),
    ("lengths", "Lengths generated, trained, dropped", ages.by_fate),
    ("groups", "Dynamic sampling", dropping.section),
    ("sampling", "Prompt sampling", sampler.section),
    ("numerics", "Numerics of the learner", numerics.section),
)
PLAIN: tuple[tuple[str, str, Section], ...] = (
    ("texts", "Sample texts", texts.section),
    ("warnings", "Warnings and errors", settings.complaints),
    ("configuration", "Configuration", settings.section),
)


def page(records: Sequence[Record]) -> str:
    """The whole document, of one run or two."""
    title = " and ".join(names(records))
    parts = [*(_part(*entry, records, grid=True) for entry in GRID), *(_part(*entry, records) for entry in PLAIN)]
    shown = [(anchor, name, body) for anchor, name, body in parts if body]
    links = "".join(f'<a href="#{anchor}">{anchor}</a>' for anchor, _, _ in shown)
    bodies = "".join(f"<h2 id={anchor}>{escape(name)}</h2>{body}" for anchor, name, body in shown)
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>"
        f'<meta name=viewport content="width=device-width, initial-scale=1">'
        f'<meta http-equiv=Content-Security-Policy content="{POLICY}"><style>{_text("page.css")}</style></head><body>'
        f"<nav><div>{links}<button>light / dark</button></div></nav>"
        f"<main><h1>{escape(title)}</h1>{_subtitles(records)}{head.section(records)}{bodies}</main>"
        f"<script>{_text('page.js')}</script></body></html>\n"
    )


def _part(
    anchor: str, name: str, section: Section, records: Sequence[Record], *, grid: bool = False
) -> tuple[str, str, str]:
    """Anchor, name and body; the body is empty if there is nothing to show."""
    body = section(records)
    return anchor, name, _gridded(body) if grid and body else body


def _gridded(body: str) -> str:
    """Leading sentences above the grid of figures."""
    at = body.find("<figure")
    return f"{body[:at]}<div class=grid>{body[at:]}</div>" if at >= 0 else body


def _subtitles(records: Sequence[Record]) -> str:
    start = [f"{name}: " if len(records) > 1 else "" for name in names(records)]
    lines = zip(start, map(head.subtitle, records), strict=True)
    return "".join(f"<p class=sub>{escape(name + text)}</p>" for name, text in lines)


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
