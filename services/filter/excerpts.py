"""samples.jsonl: a few groups of every kind from every part of the run, for people to read.

    {"step", "group", "kind", "reason", "source", "prompt", "gold", "answers": [{"text", "verdict", "reward", ..}]}

kind: `trained`, `dropped` (with the reason), `truncated` and `error` (whatever became of the group), `held-out`

A run is cut into `PERIODS` periods; of each the first `quota` groups of a kind are kept, and of a group the best and
the worst answer, one that was cut and one that could not be judged. So the file is bounded, whatever the run is. It is
no part of the account: a filter that dies may leave a group out, and nothing but the report reads it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common.messages import Scored

FILE = "samples.jsonl"
PERIODS = 40
MAX_CHARACTERS = 6000
"""Of a text; of a longer one the beginning and the end are kept."""


class Excerpts:
    """The file; `offer` it every group that was judged."""

    def __init__(self, path: Path, *, steps: int, quota: int) -> None:
        """Find out what is there; a torn last line is cut off."""
        self._path = path
        self._length = max(1, -(-steps // PERIODS))
        self._quota = quota
        self._kept: Counter[tuple[int, str]] = Counter()
        for row in _whole_rows(path):
            self._kept[self._period(row["step"]), row["kind"]] += 1

    def offer(self, scored: Scored, *, step: int, reason: str | None) -> None:
        """Keep a group if its kind is still wanted; `reason` says why it is dropped, None that it is trained."""
        for kind in _kinds(scored, reason):
            if self._kept[self._period(step), kind] < self._quota:
                self._kept[self._period(step), kind] += 1
                self._append({"step": step, "kind": kind, "reason": _reason(scored, reason), **_excerpt(scored)})
                return

    def _period(self, step: int) -> int:
        return step // self._length

    def _append(self, row: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _reason(scored: Scored, reason: str | None) -> str:
    """Held-out groups are never dropped: they are never trained."""
    return "" if scored.group.prompt.kind == "eval" else reason or ""


def _whole_rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    whole, _, torn = path.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(path, len(whole) + 1 if whole else 0)
    yield from map(json.loads, whole.splitlines())


def _kinds(scored: Scored, reason: str | None) -> Iterator[str]:
    """What a group is an example of, the rarest first."""
    if scored.group.prompt.kind == "eval":
        yield "held-out"
        return
    if any(verdict.verdict == "error" for verdict in scored.verdicts):
        yield "error"
    if any(sample.finish == "length" for sample in scored.group.samples):
        yield "truncated"
    yield "dropped" if reason else "trained"


def _excerpt(scored: Scored) -> dict[str, Any]:
    prompt = scored.group.prompt
    return {
        "group": prompt.id, "source": prompt.task.data_source, "prompt": clipped(prompt.chat[-1].content),
        "gold": clipped(prompt.task.gold), "num_answers": len(scored.verdicts),
        "num_correct": sum(verdict.verdict == "correct" for verdict in scored.verdicts),
        "answers": [_answer(scored, place) for place in chosen(scored)],
    }  # fmt: skip


def chosen(scored: Scored) -> list[int]:
    """The places of the best and the worst answer, of one that was cut and of one without a verdict, each once.

    The worst is one that ended by itself, if there is any.
    """
    samples, verdicts = scored.group.samples, scored.verdicts
    judged = [place for place, verdict in enumerate(verdicts) if verdict.verdict != "error"]
    cut = [place for place, sample in enumerate(samples) if sample.finish == "length"]
    rewards = {place: sum(scored.terms[place].values()) for place in judged}
    ended = [place for place in judged if place not in cut] or judged
    places = sorted(judged, key=lambda place: -rewards[place])[:1]
    places += sorted(ended, key=lambda place: rewards[place])[:1]
    places += cut[:1] + [place for place in range(len(verdicts)) if place not in judged][:1]
    return list(dict.fromkeys(places))


def _answer(scored: Scored, place: int) -> dict[str, Any]:
    sample, verdict, terms = scored.group.samples[place], scored.verdicts[place], scored.terms[place]
    return {
        "text": clipped(sample.text), "tokens": sample.num_tokens, "finish": sample.finish,
        "verdict": verdict.verdict, "score": verdict.score, "cause": verdict.reason, "terms": terms,
        "reward": sum(terms.values()) if terms else None,
        "versions": [sample.spans[0].version, sample.spans[-1].version],
    }  # fmt: skip


def clipped(text: str) -> str:
    """The text, or the beginning and the end of one of more than `MAX_CHARACTERS`."""
    left_out = len(text) - MAX_CHARACTERS
    if left_out <= 0:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
