import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from common import codec
from common.client import Delivery, Item, QueueClient
from common.codec import Arrays
from common.config import RunConfig
from common.messages import PROMPTS, SCORED, Policy, Prompt, Sampling, Scored
from services.cli.board import Outcome
from services.cli.evaluate import asking, figures, main
from services.cli.evaluate.asking import Asking, share
from services.filter.config import FilterConfig
from services.filter.evaluation import measures
from services.filter.state import EvalTally
from tests.memory_broker import MemoryBroker
from tests.unit.filter.makers import make_rows, make_scored

RUN = RunConfig(name="r", model="none")
POLICY = Policy(version=7, digest="d", path="/w")
TWICE = FilterConfig(data="none", eval_data="held.jsonl", eval_samples=2)


async def answer(client: QueueClient, number: int) -> list[Prompt]:
    """Judge the prompts in the place of rollout and reward: the first row wholly right, the others half."""
    inbox, prompts = client.take(PROMPTS, window=8), []
    for _ in range(number):
        item = await inbox.get()
        prompt = codec.decode(Prompt, item.frames)
        prompts.append(prompt)
        scored = make_scored(prompt, versions=[7], accuracies=[1, 1] if prompt.row == 0 else [1, 0])
        await client.give(Item(SCORED, prompt.id, codec.encode(scored, arrays_of(scored))), settles=[item.lease])
    return prompts


def arrays_of(scored: Scored) -> Arrays:
    total = sum(sample.num_tokens for sample in scored.group.samples)
    return Arrays(np.zeros(2, np.int32), np.zeros(total, np.int32), np.zeros(total, np.float32))


async def test_every_row_is_asked_under_the_version_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    subject = Asking(3, TWICE, lambda tally: seen.append(share(tally)))
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("rollout-0") as other:
        monkeypatch.setattr(asking, "connect_to_broker", lambda *_, **__: broker.client("evaluation-0"))
        prompts, _ = await asyncio.gather(answer(other, 3), subject.run(RUN, POLICY, make_rows(3)))
        assert broker.ids(SCORED) == broker.ids(PROMPTS) == []
    assert [(p.id, p.min_version, p.sampling.n) for p in prompts] == [
        (f"eval/7/{place:06d}", 7, 2) for place in range(3)
    ]
    assert subject.tally.accuracy == pytest.approx((2 + 1 + 1) / 6)
    assert seen[-1] == 1.0
    assert measures(subject.tally) == pytest.approx({"avg@2": 4 / 6, "pass@1": 4 / 6, "pass@2": 1.0})


def delivery(name: str, frames: list[bytes]) -> Delivery:
    return Delivery(SCORED, name, 1, 1, frames)


def test_a_row_that_is_delivered_twice_counts_once_and_one_that_does_not_decode_is_dead() -> None:
    subject = Asking(2, TWICE, lambda tally: None)
    sampling = Sampling(n=2, temperature=1.0, max_tokens=8, seed=0)
    row = make_rows(1)[0]
    prompt = Prompt(
        id="eval/7/000000", kind="eval", row=0, chat=list(row.chat), task=row.task, sampling=sampling, min_version=7
    )
    scored = make_scored(prompt, versions=[7], accuracies=[1, 0])
    for _ in range(2):
        subject._add(delivery(prompt.id, codec.encode(scored, arrays_of(scored))))
    subject._add(delivery("eval/7/000001", [b"torn"]))
    tally = subject.tally
    assert (tally.answered, tally.judged, tally.correct, tally.dead) == (1, 2, 1.0, ["eval/7/000001"])
    assert tally.finished


def found(tally: EvalTally) -> dict[str, Any]:
    return figures.figures(RUN, TWICE, POLICY, tally, seconds=1.0)


def test_dead_rows_and_errors_are_said_and_not_counted_as_wrong() -> None:
    # three rows came back, one with a single verdict: avg@2 is 5/5, pass@2 rests on the other two rows
    tally = EvalTally(rows=4, samples=2, answered=3, judged=5, correct=5.0, errors=1, dead=["eval/0/000003"])
    tally.passes, tally.ranked = {1: 3.0, 2: 2.0}, {1: 3, 2: 2}
    seen = found(tally)
    assert (seen["avg@2"], seen["pass@2"], seen["pass_rows"], seen["errors"], seen["dead"]) == (
        1.0, 1.0, {1: 3, 2: 2}, 1, 1,
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=100)
    console.print(figures.table(seen))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "pass@2" in text
    assert "1.0000 (of 2 rows)" in text
    assert figures.emptiness(tally) == ""


def test_the_object_names_the_settings_that_the_figures_depend_on() -> None:
    seen = found(EvalTally(rows=1, samples=2, answered=1, judged=2, correct=1.0))
    wanted = {"step": 7, "data": "held.jsonl", "samples": 2, "temperature": 1.0, "max_tokens": 1024, "seed": 0}
    assert {key: seen[key] for key in wanted} == wanted
    json.dumps(seen)


def test_an_evaluation_in_which_every_verifier_failed_has_no_result() -> None:
    tally = EvalTally(rows=2, samples=2, answered=1, errors=2, dead=["eval/0/000001"])
    assert figures.emptiness(tally) == "no answer could be judged: 2 without a verdict, 1 rows not answered"


def test_being_stopped_does_not_speak_of_resuming() -> None:
    outcome = Outcome(status=130, message="stopped; `--resume` goes on from here")
    assert main._complaint(outcome, Path("x")) == "stopped, nothing was measured"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.toml"], "absent.toml does not exist: give a run folder"),
        (["{config}", "--step", "3"], "--step needs a run folder"),
        (["{config}", "--samples", "0"], "`eval_samples` must be at least 1"),
        (["{config}", "--samples", "5000"], "at most 4096"),
        (["{config}", "--samples", "4", "--temperature", "0"], "greedy ones are all the same"),
        (["{config}"], "no held-out rows: give --data FILE"),
        (["{config}", "--data", "absent.jsonl"], "absent.jsonl does not exist"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    held_out = "eval_rows = 0" if words == ["{config}"] else f'eval_data = "{tmp_path}/rows.jsonl"'
    config = tmp_path / "c.toml"
    config.write_text(f'[run]\nname = "r"\nmodel = "{model}"\n[filter]\ndata = "{tmp_path}/rows.jsonl"\n{held_out}\n')
    (tmp_path / "other.jsonl").write_text('{"prompt": "1+2", "answer": "3"}\n')
    config.write_text(config.read_text().replace(f'data = "{tmp_path}/rows', f'data = "{tmp_path}/other', 1))
    assert main.main([word.format(config=config) for word in words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("dapo eval: ")
    assert error.count("\n") == 1
