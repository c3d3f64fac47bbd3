"""The numbers that services show on /metrics, as one table; a service that does not answer is left out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from services.cli.ports import Endpoint

TIMEOUT_S = 0.5


class Number(NamedTuple):
    """One sample of one process."""

    process: str
    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Numbers:
    """What was scraped at one moment."""

    all: Sequence[Number] = field(default_factory=list)

    def of(self, name: str, **labels: str) -> list[Number]:
        """The numbers of this name that have these labels."""
        return [n for n in self.all if n.name == name and labels.items() <= n.labels.items()]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0 if there are none."""
        return sum(n.value for n in self.of(name, **labels))

    def first(self, name: str, **labels: str) -> float | None:
        """The first; None if there is none."""
        return next((n.value for n in self.of(name, **labels)), None)


def scrape(endpoints: Iterable[Endpoint]) -> Numbers:
    """Ask every endpoint once."""
    return Numbers([number for endpoint in endpoints for number in _scrape_one(endpoint)])


def _scrape_one(endpoint: Endpoint) -> list[Number]:
    try:
        with urlopen(f"http://{endpoint.host}:{endpoint.port}/metrics", timeout=TIMEOUT_S) as answer:
            return list(_parse(endpoint.name, answer.read().decode()))
    except (OSError, HTTPException, ValueError):
        return []


def _parse(process: str, text: str) -> Iterator[Number]:
    ours = "\n".join(line for line in text.splitlines() if line.startswith("dapo_"))
    for family in text_string_to_metric_families(ours + "\n"):
        for sample in family.samples:
            yield Number(process, sample.name, dict(sample.labels), sample.value)
