"""The real filter and broker as processes, killed on purpose, among scripted rollouts and a scripted learner.

The scripts write the histories that rollout and learner would, so `dapo audit` judges the filter with code that shares
nothing with it. No model: an answer is kept or dropped by a hash of its id.
"""

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tomli_w

from common import config
from common.client import Item, QueueClient, Watched, connect
from common.codec import Arrays, decode, decode_batch, encode
from common.config import RunConfig
from common.history import History
from common.messages import BATCHES, FEEDBACK, PROMPTS, RUN, SCORED, Feedback, Prompt, RunState
from services.filter.ages import versions_of
from services.filter.state import FilterState, loads
from tests.unit.filter.makers import is_kept, make_scored

GSM8K = [{"question": f"{n} + 1 = ?", "answer": f"so much\n#### {n + 1}"} for n in range(40)]
LIMIT_S = 60.0


class Pipeline:
    """A run folder, two processes, and scripts in this one."""

    def __init__(self, folder: Path, *, data: str, run: dict[str, Any], filter_keys: dict[str, Any]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        table = {"name": "r", "model": "none", "folder": str(folder), "group_size": 2, "heartbeat_s": 0.1,
                 "lease_s": 2.0, "broker": f"tcp://127.0.0.1:{port}"}  # fmt: skip
        tables = {
            "run": table | run,
            "broker": {"metrics_port": -1, "max_deliveries": 50},
            "filter": {"metrics_port": -1, "data": data} | filter_keys,
        }
        self.run = config.section(config.Tree(path=folder, tables=tables), "run", RunConfig)
        self.run.path.mkdir(parents=True)
        self.config = self.run.path / "config.toml"
        self.config.write_text(tomli_w.dumps(tables))
        self.drop_rate, self.answer_s, self.train_s = 0.3, 0.0, 0.0
        self.published = 0
        self.batches: list[list[str]] = []
        self.golds: set[str] = set()
        self.processes: list[subprocess.Popen[str]] = []
        self._rollout_history = History(self.run.path / "history", "rollout-0")
        self._learner_history = History(self.run.path / "history", "learner-0")
        self._rollout_history.append("loaded", version=0, digest="0")
        self._learner_history.append("published", version=0, digest="0")

    def start(self, role: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"services.{role}", str(self.config)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.processes.append(process)
        return process

    async def finish(self, *, kills: int = 0) -> FilterState:
        """Work until the run is done; kill -9 the filter `kills` times on the way."""
        self.start("broker")
        chooser = self.start("filter")
        async with contextlib.AsyncExitStack() as stack:
            rollout, learner, watcher = [
                await stack.enter_async_context(connect(self.run.broker, name, heartbeat_s=0.1))
                for name in ("rollout-0", "learner-0", "watcher-0")
            ]
            work = [asyncio.ensure_future(self._rollout(rollout)), asyncio.ensure_future(self._learner(learner))]
            done = asyncio.ensure_future(_until_done(watcher.watch(RUN)))
            async with asyncio.timeout(LIMIT_S):
                for number in range(kills):
                    while len(self.batches) < (number + 1) * self.run.steps // (kills + 1):  # noqa: ASYNC110 - a test
                        await asyncio.sleep(0.005)
                    chooser.kill()
                    chooser.wait()
                    chooser = self.start("filter")
                await asyncio.wait([done, *work], return_when=asyncio.FIRST_COMPLETED)
            done.result()
            state = loads((await watcher.watch("filter").changed()).value)
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        return state

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.communicate(timeout=20)

    def audit(self) -> dict[str, Any]:
        """What `dapo audit` says of the stopped run."""
        command = [sys.executable, "-m", "services.cli", "audit", str(self.run.path)]
        report: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        return report

    async def _rollout(self, client: QueueClient) -> None:
        """Prompts -> scored groups, each by the version published when it began; one in ten takes ten times longer."""
        inbox = client.take(PROMPTS, window=16)
        async with asyncio.TaskGroup() as tasks:
            while True:
                item = await inbox.get()
                tasks.create_task(self._answer(client, item.lease, decode(Prompt, item.frames)))

    async def _answer(self, client: QueueClient, lease: int, prompt: Prompt) -> None:
        self.golds.add(prompt.task.gold)
        first = self.published
        await asyncio.sleep(self.answer_s * (10 if random.Random(prompt.id).random() < 0.1 else 1))
        versions = sorted({first, self.published})
        kept = is_kept(prompt.id, seed=3, drop_rate=self.drop_rate)
        scored = make_scored(prompt, versions=versions, accuracies=(1, 0) if kept else (0, 0))
        tokens = sum(sample.num_tokens for sample in scored.group.samples)
        arrays = Arrays(np.zeros(1, "<i4"), np.zeros(tokens, "<i4"), np.zeros(tokens, "<f4"))
        spans = [[[s.version, s.start, s.end] for s in sample.spans] for sample in scored.group.samples]
        self._rollout_history.append("sampled", id=prompt.id, spans=spans)
        await client.give(Item(SCORED, prompt.id, encode(scored, arrays)), settles=[lease])

    async def _learner(self, client: QueueClient) -> None:
        """Batches -> feedback."""
        inbox = client.take(BATCHES, window=2)
        while True:
            item = await inbox.get()
            batch, _ = decode_batch(item.frames)
            await asyncio.sleep(self.train_s)
            ids = [scored.group.prompt.id for scored in batch.groups]
            self.batches.append(ids)
            oldest = min(versions_of(scored).oldest for scored in batch.groups)
            self._learner_history.append("trained", step=batch.step, ids=ids, oldest=oldest, tokens=1)
            self.published = batch.step + 1
            self._learner_history.append("published", version=self.published, digest=str(self.published))
            self._rollout_history.append("loaded", version=self.published, digest=str(self.published))
            feedback = Feedback(step=batch.step, version=self.published, groups=[])
            await client.give(Item(FEEDBACK, item.id, encode(feedback)), settles=[item.lease])


async def _until_done(states: Watched) -> None:
    while True:
        register = await states.changed()
        if register.version and decode(RunState, [register.value]).phase == "done":
            return


@contextlib.asynccontextmanager
async def pipeline(
    folder: Path, rows: list[dict[str, Any]], *, parquet: bool = False, **keys: Any
) -> AsyncIterator[Pipeline]:
    os.makedirs(folder, exist_ok=True)
    data = folder / ("rows.parquet" if parquet else "rows.jsonl")
    if parquet:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)
    else:
        data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    filter_keys = {key: keys.pop(key) for key in ("max_dropped_in_a_row", "on_bad_row", "sampling") if key in keys}
    run = {"steps": 6, "groups_per_batch": 4, "max_staleness": 0} | keys
    subject = Pipeline(folder, data=str(data), run=run, filter_keys=filter_keys)
    try:
        yield subject
    finally:
        subject.stop()


def assert_sound(subject: Pipeline, state: FilterState) -> dict[str, Any]:
    """Invariants 1 to 4 by the audit, and the same account in the register."""
    subject.stop()
    report = subject.audit()
    assert report["ok"], report["violations"]
    assert (report["lost"], report["trained_twice"], report["left"]) == (0, 0, 0)
    assert report["issued"] == state.issued == state.trained + state.num_dropped
    assert report["filtered"] == state.dropped
    assert report["trained"] == state.trained == subject.run.steps * subject.run.groups_per_batch
    assert report["greatest_age"] <= subject.run.max_staleness
    return report


async def test_a_filter_killed_three_times_trains_what_one_left_alone_does(tmp_path: Path) -> None:
    # D26 and D15, on raw GSM8K rows (D35)
    async with pipeline(tmp_path / "twin", GSM8K, steps=20) as twin:
        assert_sound(twin, await twin.finish())
    async with pipeline(tmp_path / "run", GSM8K, steps=20) as subject:
        report = assert_sound(subject, await subject.finish(kills=3))
    assert subject.batches == twin.batches
    assert report["filtered"].keys() == {"all_wrong"}
    assert {"1", "40"} <= subject.golds


async def test_an_adaptive_filter_killed_three_times_has_every_draw_and_every_step_on_record(tmp_path: Path) -> None:
    # of 60 * 4 / 0.7 = 343 draws one in four is a new prompt: at least 85, so the file of prompts is written (every 64)
    rows = [{"prompt": f"P{n}", "answer": n, "data_source": "abc"[n % 3]} for n in range(400)]
    async with pipeline(tmp_path, rows, steps=60, sampling="signal", max_staleness=1) as subject:
        state = await subject.finish(kills=3)
        assert_sound(subject, state)
    record = [json.loads(line) for line in (subject.run.path / "sampling.jsonl").read_text().splitlines()]
    assert [row["step"] for row in record] == list(range(60))
    assert sum(c["draws"] for row in record for c in row["categories"].values()) == state.issued
    assert state.sampler.file in {path.name for path in (subject.run.path / "sampling").iterdir()}


async def test_rows_of_verl_train_from_parquet_without_conversion(tmp_path: Path) -> None:
    rows = [
        {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": str(n)}], "ability": "math",
         "reward_model": {"style": "rule", "ground_truth": str(n)}, "extra_info": {"index": n}}
        for n in range(12)
    ]  # fmt: skip
    async with pipeline(tmp_path, rows, parquet=True) as subject:
        assert_sound(subject, await subject.finish())
        assert subject.golds == {str(n) for n in range(12)}


@pytest.mark.parametrize("policy", ["wait", "drop"])
async def test_no_token_is_trained_older_than_the_bound_while_weights_change_under_slow_answers(
    tmp_path: Path, policy: str
) -> None:
    # D21: one answer in ten takes ten times longer, a version comes out several times meanwhile
    async with pipeline(tmp_path, GSM8K, steps=25, max_staleness=1, on_stale=policy) as subject:
        subject.answer_s, subject.train_s = 0.02, 0.01
        state = await subject.finish()
        report = assert_sound(subject, state)
    assert ("stale" in state.dropped) == (policy == "drop")
    assert report["greatest_age"] == 1


async def test_two_rows_in_three_that_cannot_be_used_are_counted_and_not_trained(tmp_path: Path) -> None:
    # D05
    rows = [{"prompt": f"P{n}", "answer": gold} for n, gold in enumerate(("", None, 42))]
    async with pipeline(tmp_path, rows, on_bad_row="drop", steps=2, groups_per_batch=2) as subject:
        subject.drop_rate = 0.0
        assert_sound(subject, await subject.finish())
        assert subject.golds == {"42"}
    log = (subject.run.path / "logs" / "filter-0.jsonl").read_text()
    (refused,) = [line for line in map(json.loads, log.splitlines()) if line["event"] == "refused rows left out"]
    assert (refused["count"], refused["rows"]) == (2, [1, 2])


async def test_when_nothing_ever_passes_the_run_stops_at_the_cap_with_one_sentence(tmp_path: Path) -> None:
    # D11: a reward that is always 0, batches of four groups, three rounds
    async with pipeline(tmp_path, GSM8K, max_dropped_in_a_row=12) as subject:
        subject.drop_rate = 1.0
        subject.start("broker")
        chooser = subject.start("filter")
        async with (
            connect(subject.run.broker, "rollout-0", heartbeat_s=0.1) as rollout,
            connect(subject.run.broker, "watcher-0", heartbeat_s=0.1) as watcher,
        ):
            work = asyncio.ensure_future(subject._rollout(rollout))
            _, said = await asyncio.to_thread(chooser.communicate, timeout=LIMIT_S)
            state = decode(RunState, [(await watcher.watch(RUN).changed()).value])
            account = loads((await watcher.watch("filter").changed()).value)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    assert chooser.returncode == 2
    (sentence,) = [line for line in said.splitlines() if not line.startswith("{")]
    assert sentence == f"dapo filter: {state.message}"
    assert state.phase == "failed"
    for part in ("max_dropped_in_a_row = 12", "0 kept, dropped: all_wrong", "choose easier rows"):
        assert part in sentence
    assert account.dropped["all_wrong"] + account.num_outstanding == account.issued
