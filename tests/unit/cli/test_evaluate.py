import asyncio
from pathlib import Path

import numpy as np
import pytest

from common import codec
from common.client import Item, QueueClient
from common.codec import Arrays
from common.config import RunConfig
from common.messages import PROMPTS, SCORED, Policy, Prompt, Sampling, Scored
from services.cli.evaluate import asking, main
from services.cli.evaluate.asking import Asking
from services.filter.state import EvalTally
from tests.memory_broker import MemoryBroker
from tests.unit.filter.makers import make_rows, make_scored

RUN = RunConfig(name="r", model="none")
POLICY = Policy(version=7, digest="d", path="/w")


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
    subject = Asking(3, lambda tally: seen.append(main.share(tally)))
    async with MemoryBroker(tmp_path / "broker") as broker, broker.client("rollout-0") as other:
        monkeypatch.setattr(asking, "connect", lambda *_, **__: broker.client("evaluation-0"))
        sampling = Sampling(n=2, temperature=1.0, max_tokens=8, seed=0)
        prompts, _ = await asyncio.gather(answer(other, 3), subject.run(RUN, POLICY, make_rows(3), sampling))
        assert broker.ids(SCORED) == broker.ids(PROMPTS) == []
    assert [(p.id, p.min_version, p.sampling.n) for p in prompts] == [
        (f"eval/7/{place:06d}", 7, 2) for place in range(3)
    ]
    assert subject.tally.accuracy == pytest.approx((2 + 1 + 1) / 6)
    assert seen[-1] == 1.0
    assert main.measures(subject.tally, 2) == {
        "avg@2": pytest.approx(4 / 6), "pass@1": pytest.approx(4 / 6), "pass@2": 1.0, "errors": 0, "dead": 0,
    }  # fmt: skip


def test_dead_rows_and_errors_are_said_and_not_counted_as_wrong() -> None:
    tally = EvalTally(rows=4, answered=3, judged=5, correct=5.0, errors=1, dead=["eval/0/000003"])
    assert tally.finished
    assert main.measures(tally, 2) == {"avg@2": 1.0, "errors": 1, "dead": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.toml"], "configuration absent.toml does not exist"),
        (["{config}", "--step", "3"], "--step needs a run folder"),
        (["{config}", "--samples", "0"], "`eval_samples` must be at least 1"),
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
