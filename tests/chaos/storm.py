"""A run in a storm of faults, its undisturbed twin, and what both left behind, judged by the audit and by replay.

storm: run <- a fault every 2 to 8 s, chosen by the seed -> Ctrl-C -> --resume to a planned end -> audit, replay
calm:  the same run without proxy, faults or lies -> its steps a second
"""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tests.chaos.faults import FAULTS, RESUME, Chaos
from tests.chaos.processes import NAMES, Run
from tests.chaos.proxy import Proxy
from tests.chaos.recovery import Recovery, small_disk
from tests.chaos.setting import Setting, dapo, prepare

BETWEEN_S = (2.0, 8.0)
LAST_STEPS = 6
"""Steps that a run has to make undisturbed, after the storm, to its planned end."""
START_S, FINISH_S = 90.0, 180.0


@contextlib.contextmanager
def workplace() -> Iterator[tuple[Path, Path | None, str]]:
    """A folder, a small file system in it, and why there is none if there is none."""
    with tempfile.TemporaryDirectory(prefix="dapo-chaos-", ignore_cleanup_errors=True) as name:
        disk = Path(name) / "disk"
        why_not = small_disk(disk)
        try:
            yield Path(name), None if why_not else disk, why_not
        finally:
            if not why_not:
                subprocess.run(["umount", "--lazy", str(disk)], check=False)


async def storm(
    *, seconds: float, seed: int, between_s: tuple[float, float] = BETWEEN_S, log: TextIO
) -> dict[str, Any]:
    """Storm and judge; the result as one JSON object."""
    with workplace() as (folder, disk, why_not):
        setting = prepare(folder, seed=seed, runs=disk)
        print(f"seed {seed}, in {folder}" + (f"; no small disk: {why_not}" if why_not else ""), file=log)
        clock = folder / "clock"
        clock.write_bytes(bytes(8))
        run, recovery = Run(setting, clock=clock), Recovery(setting)
        async with Proxy(port=setting.proxy, broker=setting.broker, seed=seed) as proxy:
            chaos = Chaos(run=run, proxy=proxy, recovery=recovery, dice=random.Random(seed), clock=clock, disk=disk)
            try:
                return await _weathered(chaos, seconds=seconds, between_s=between_s, log=log)
            finally:
                await run.kill()


async def _weathered(chaos: Chaos, *, seconds: float, between_s: tuple[float, float], log: TextIO) -> dict[str, Any]:
    run = chaos.run
    await run.start()
    await until_step(run, 1)
    start, faults, stops = time.monotonic(), Counter[str](), []
    names, weights = list(FAULTS), [weight for _, weight in FAULTS.values()]
    while time.monotonic() - start < seconds:
        await asyncio.sleep(chaos.dice.uniform(*between_s))
        (name,) = chaos.dice.choices(names, weights)
        said = await FAULTS[name][0](chaos)
        faults[name] += 1
        print(f"{time.monotonic() - start:7.1f} s  step {run.steps:5d}  {said}", file=log, flush=True)
        if run.ended:
            stops.append(await _stopped(chaos))
            print(f"{time.monotonic() - start:7.1f} s  the run stopped: {stops[-1]}", file=log, flush=True)
            await run.start(RESUME)
    wall_s, steps = time.monotonic() - start, run.steps
    load = os.getloadavg()[0]
    report = {
        "seconds": round(wall_s),
        "cores": os.cpu_count(),
        "load_average": load,
        "faults": dict(faults),
        "messages": dict(chaos.proxy.counts),
        "stops": stops,
    }
    return report | await _concluded(chaos, wall_s=wall_s, steps=steps, log=log)


async def _concluded(chaos: Chaos, *, wall_s: float, steps: int, log: TextIO) -> dict[str, Any]:
    """Calm again: stop, resume to a planned end, audit, replay."""
    run = chaos.run
    await asyncio.gather(*chaos.tasks)
    if not run.ended:
        run.interrupt()
        await run.finish(60)
    status = -1
    for _ in range(3):  # a service may have been about to stop the run when the storm ended
        await run.start(RESUME, f"run.steps={run.steps + LAST_STEPS}")
        with contextlib.suppress(TimeoutError):
            status = await run.finish(FINISH_S)
        if status == 0:
            break
        print(f"the last run ended with {status}: {last_words(run)}", file=log, flush=True)
        await run.kill()
    audit = verb("audit", run.setting)
    replay = verb("replay", run.setting)
    rows = [json.loads(line) for line in (run.setting.run / "metrics.jsonl").read_text().splitlines()]
    useful = sum(row.get(f"{phase}_seconds", 0.0) for row in rows[:steps] for phase in ("train", "publish"))
    return {
        "finished": status == 0,
        "steps": len(rows),
        "steps_per_second": steps / wall_s,
        "useful_time_share": useful / wall_s,
        "recovery_seconds": {role: quantiles(each) for role, each in sorted(chaos.recovery.seconds.items())},
        "unrecovered": chaos.recovery.unrecovered,
        "groups": {
            key: audit[key] for key in ("issued", "trained", "filtered", "dead", "left", "lost", "trained_twice")
        },
        "greatest_age": audit["greatest_age"],
        "max_staleness": audit["max_staleness"],
        "audit_ok": audit["ok"],
        "violations": audit["violations"][:20],
        "steps_trained_again": audit["steps_trained_again"],
        "replay": replay,
        "refusals": refusals(run.setting),
    }


async def calm(*, seconds: float, seed: int) -> dict[str, Any]:
    """The undisturbed twin: steps a second, useful time share, and how long its services took to start together."""
    with workplace() as (folder, disk, _):
        setting = prepare(folder, seed=seed, runs=disk, proxied=False, lies=False)
        clock = folder / "clock"
        clock.write_bytes(bytes(8))
        run, recovery = Run(setting, clock=clock), Recovery(setting)
        try:
            await run.start()
            for name in NAMES:
                recovery.watch(name)
            await until_step(run, 1)
            first, start = run.steps, time.monotonic()
            await asyncio.sleep(seconds)
            steps, wall_s = run.steps - first, time.monotonic() - start
        finally:
            await run.kill()
        rows = [json.loads(line) for line in (setting.run / "metrics.jsonl").read_text().splitlines()]
    useful = sum(row[f"{phase}_seconds"] for row in rows[first : first + steps] for phase in ("train", "publish"))
    return {
        "steps_per_second": steps / wall_s,
        "useful_time_share": useful / wall_s,
        "start_seconds": {role: max(each) for role, each in sorted(recovery.seconds.items())},
    }


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Median, 95th percentile (the next larger value) and maximum."""
    ordered = sorted(seconds)
    places = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    found = {
        name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) for name, share in places.items()
    }
    return found | {"times": len(ordered)}


def verb(name: str, setting: Setting) -> dict[str, Any]:
    """The JSON that a verb prints about the run."""
    answer = subprocess.run(dapo(name, str(setting.run)), capture_output=True, text=True, check=False, timeout=600)
    if not answer.stdout:
        raise AssertionError(f"dapo {name} failed: {answer.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def refusals(setting: Setting) -> dict[str, int]:
    """What services refused, by their own words in the logs."""
    counts: Counter[str] = Counter()
    for path in (setting.run / "logs").glob("*.jsonl"):
        for line in path.read_text(errors="replace").splitlines():
            for word in ("group failed", "group refused", "version refused", "damaged message", "disk full"):
                counts[word] += f'"{word}' in line
    return {word: count for word, count in counts.items() if count}


def last_words(run: Run) -> str:
    """What the supervisor said last."""
    lines = [line for line in run.output.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


async def until_step(run: Run, step: int) -> None:
    """Wait for a step of a run that goes on."""
    async with asyncio.timeout(START_S):
        while run.steps < step:
            if run.ended:
                raise AssertionError(f"the run ended before its first step: {last_words(run)}")
            await asyncio.sleep(0.1)


async def _stopped(chaos: Chaos) -> str:
    """Why the run stopped; what is undone by itself (a full disk) is waited for."""
    said = last_words(chaos.run)
    chaos.recovery.forget()
    await asyncio.gather(*chaos.tasks)
    await chaos.run.kill()
    return said
