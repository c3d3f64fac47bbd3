"""D24 and D25 with real processes: workers that die, come late, fall silent and leave."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.chaos.processes import Run
from tests.chaos.setting import LEASE_S, dapo, prepare
from tests.chaos.storm import until_step

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
STEPS = 16


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(8))
    run = Run(prepare(tmp_path, seed=5, proxied=False, lies=False), clock=clock)
    yield run
    await run.kill()


def events(run: Run, name: str) -> list[dict[str, Any]]:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    for path in sorted((run.setting.run / "history").glob(f"{name}-*.msgpack")):
        unpacker.feed(path.read_bytes())
    return list(unpacker)


@pytest.mark.timeout(400)
async def test_workers_may_die_come_late_fall_silent_and_leave_at_any_moment(run: Run) -> None:
    await run.start(f"run.steps={STEPS}")
    await until_step(run, 3)
    assert run.signal("rollout-0", signal.SIGKILL)
    await until_step(run, 5)
    command = [sys.executable, "-m", "services.rollout", f"{run.setting.run}/config.toml", "--replica", "9"]
    late = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})  # noqa: ASYNC220
    async with asyncio.timeout(60):
        while not any(event["event"] == "sampled" for event in events(run, "rollout-9")):
            assert not run.ended, "the run ended before the late rollout had sampled: give it more steps"
            await asyncio.sleep(0.05)
    late.send_signal(signal.SIGTERM)  # it leaves in the middle of its work
    assert late.wait(timeout=20) == 0
    run.signal("learner-0", signal.SIGSTOP)
    await asyncio.sleep(1.5 * LEASE_S)
    run.signal("learner-0", signal.SIGCONT)
    assert await run.finish(200) == 0, run.output.read_text()

    loaded, sampled = [[e for e in events(run, "rollout-9") if e["event"] == kind] for kind in ("loaded", "sampled")]
    assert loaded[0]["version"] >= 5  # the version of the moment, before its first request
    assert all(version >= loaded[0]["version"] for spans in sampled[0]["spans"] for version, _, _ in spans)
    answer = subprocess.run(dapo("audit", str(run.setting.run)), capture_output=True, text=True, check=False)  # noqa: ASYNC221
    report = json.loads(answer.stdout)
    assert report["violations"] == []
    assert (report["steps"], report["trained"], report["lost"]) == (STEPS, STEPS * 8, 0)


@pytest.mark.timeout(300)
async def test_a_run_whose_rollouts_are_gone_ends_with_the_cause_within_its_limit(run: Run) -> None:
    await run.start("run.stall_s=6", "rollout.scripted={seconds=100000.0}")
    loop = asyncio.get_running_loop()
    start = loop.time()
    # the register `run` says failed (1), or the filter ends with its sentence first (2)
    assert await run.finish(120) in (1, 2)
    assert "a rollout holds" in run.output.read_text()
    assert loop.time() - start < 100
