"""What a person should look at, by the numbers of a snapshot: one sentence an alarm, each with what to do.

Bounds are those of trouble, not of taste: a run without an alarm may still learn nothing.
"""

from collections.abc import Callable, Iterator

from services.cli.shares import shares
from services.cli.snapshot import Snapshot

ERROR_SHARE, ENOUGH_VERDICTS = 0.05, 100
STARVED = 0.5
LEAST_ESS, GREATEST_KL, LEAST_ENTROPY = 0.5, 0.1, 0.02
STUCK_S, STUCK_STEPS = 120.0, 10.0
"""No step for so many seconds, and for so many times the usual length of a step."""


def alarms(snapshot: Snapshot, *, max_staleness: int, now: float) -> list[str]:
    """The sentences; none if all is well."""
    found = [*_services(snapshot), *_groups(snapshot), *_numerics(snapshot), *_progress(snapshot, now)]
    if (age := snapshot.newest("age_max") or 0) > max_staleness:
        found.append(f"a token of age {age:g} was trained, the bound is {max_staleness}: run `dapo audit`")
    return found


def _services(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.silent and 0 < snapshot.step < snapshot.steps:
        yield f"no metrics from {', '.join(snapshot.silent)}: dead, starting again, or on another machine"
    dead = snapshot.numbers.total("dapo_broker_dead_letters_total")
    if dead:
        yield f"{dead:.0f} dead letters: look in the logs of rollout and reward for why their items fail"
    verdicts = snapshot.numbers.total("dapo_reward_verdicts_total")
    errors = snapshot.numbers.total("dapo_reward_verdicts_total", verdict="error")
    if verdicts >= ENOUGH_VERDICTS and errors / verdicts > ERROR_SHARE:
        yield f"{errors / verdicts:.0%} of the verdicts are errors: look in the log of the reward service"


def _groups(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.numbers.first("dapo_filter_low_keep_rate"):
        yield "few groups are kept: the rows are too easy or too hard, see the reasons of the drops"
    learner = snapshot.seconds.get("learner", {})
    if sum(learner.values()) and (share := shares(learner)["starved"]) > STARVED:
        yield f"the learner waits {share:.0%} of its time: more rollouts, or a greater max_staleness"


def _numerics(snapshot: Snapshot) -> Iterator[str]:
    bounds: tuple[tuple[str, Callable[[float], bool], str], ...] = (
        ("ess", lambda value: value < LEAST_ESS, "few tokens carry the step: lower max_staleness or the learning rate"),
        ("mismatch_kl", lambda value: value > GREATEST_KL, "engine and learner disagree: run `dapo doctor --loss`"),
        ("entropy", lambda value: value < LEAST_ENTROPY, "the policy has stopped exploring"),
    )
    for name, is_bad, advice in bounds:
        value = snapshot.newest(name)
        if value is not None and is_bad(value):
            yield f"{name} {value:.2g}: {advice}"


def _progress(snapshot: Snapshot, now: float) -> Iterator[str]:
    times = snapshot.column("time")
    if not times or snapshot.step >= snapshot.steps:
        return
    usual = (times[-1] - times[0]) / max(1, len(times) - 1)
    silence = now - times[-1]
    if silence > max(STUCK_S, STUCK_STEPS * usual):
        yield f"no step for {silence / 60:.0f} minutes"
