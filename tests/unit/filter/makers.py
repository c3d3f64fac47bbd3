"""Small prompts, groups and rows for the tests of the filter."""

import random
from collections.abc import Sequence

from common.config import RunConfig
from common.messages import ChatMessage, Group, Prompt, Sample, Scored, Span, Task, Verdict
from services.filter.config import FilterConfig
from services.filter.planner import Planner
from services.filter.sampling.choose import choose
from services.filter.schema import Row
from services.filter.state import FilterState


def make_run(**changes: object) -> RunConfig:
    """A run of two samples a group."""
    return RunConfig(name="simulated", model="none", group_size=2, **changes)  # type: ignore[arg-type]


def make_rows(number: int) -> list[Row]:
    """Rows that differ, of three categories in turn."""
    task = Task(verifier="math", gold="1")
    return [
        Row(number=n, chat=(ChatMessage(role="user", content=str(n)),), task=task, category="abc"[n % 3])
        for n in range(1, number + 1)
    ]


def make_planner(
    state: FilterState, run: RunConfig, *, held_out: int = 0, rows: int = 20, file: bytes = b"", **keys: object
) -> Planner:
    """A planner over `rows` rows, with the sampler that the keys of [filter] ask for."""
    config = FilterConfig(data="none", **keys)  # type: ignore[arg-type]
    data = make_rows(rows)
    sampler = choose(config, run, data, state.sampler, file)
    return Planner(state, run=run, config=config, rows=data, held_out=make_rows(held_out), sampler=sampler)


def make_sample(versions: Sequence[int]) -> Sample:
    """A response of one token per version given."""
    spans = [Span(version=version, start=at, end=at + 1) for at, version in enumerate(versions)]
    return Sample(num_tokens=len(spans), finish="stop", spans=spans, text="")


def make_scored(prompt: Prompt, *, versions: Sequence[int], accuracies: Sequence[float | None] = (1, 0)) -> Scored:
    """The group of a prompt, every sample written by these versions; None is a verifier that failed."""
    verdicts = [
        Verdict(verdict="error") if a is None else Verdict(verdict="correct" if a >= 0.5 else "wrong", score=a)
        for a in accuracies
    ]
    samples = [make_sample(versions) for _ in accuracies]
    terms = [{} if a is None else {"task": 2 * a - 1} for a in accuracies]
    return Scored(group=Group(prompt=prompt, samples=samples), verdicts=verdicts, terms=terms)


def is_kept(name: str, *, seed: int, drop_rate: float) -> bool:
    """Whether the samples of a group differ: it depends on the group alone, not on when it is asked."""
    return random.Random(f"{seed}:{name}").random() >= drop_rate
