"""Which processes make up a run on this machine, and where each listens.

sections -> replicas by role -> Spec (what to start) and Endpoint (what it listens on) per process
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from common import config
from common.config import RunConfig, Tree
from services.cli.children import Spec
from services.cli.folder import CONFIG
from services.cli.gpus import BY_BUS, VARIABLE
from services.cli.guard import MARK
from services.cli.ports import Endpoint, listener

Sections = Mapping[str, Any]
ROLES = ("broker", "learner", "weights", "rollout", "reward", "filter")
"""In the order in which they are started."""


def read_sections(tree: Tree) -> dict[str, Any]:
    """All sections of a configuration, resolved; raises `UserError` for the first that cannot be."""
    from services.broker.config import BrokerConfig
    from services.filter.config import FilterConfig
    from services.learner.config import LearnerConfig
    from services.reward.config import RewardConfig
    from services.rollout.config import RolloutConfig
    from services.weights.config import WeightsConfig

    kinds: dict[str, type[Any]] = {
        "run": RunConfig,
        "broker": BrokerConfig,
        "weights": WeightsConfig,
        "rollout": RolloutConfig,
        "reward": RewardConfig,
        "filter": FilterConfig,
        "learner": LearnerConfig,
    }
    return {name: config.section(tree, name, kind) for name, kind in kinds.items()}


def processes(sections: Sections) -> Iterator[tuple[str, int]]:
    """(role, replica) of every process."""
    for role in ROLES:
        if role == "weights" and not sections["run"].weights:
            continue
        for replica in range(getattr(sections[role], "replicas", 1)):
            yield role, replica


def specs(
    sections: Sections, *, run_folder: Path, mark: str, environment: Mapping[str, str],
    gpus: Mapping[str, str] | None = None,
) -> list[Spec]:  # fmt: skip
    """What to start, in order. `gpus` has CUDA_VISIBLE_DEVICES by the name of a process."""
    order = {} if VARIABLE in environment else BY_BUS
    devices = {name: {**order, VARIABLE: value} for name, value in (gpus or {}).items()}
    return [
        Spec(
            name=f"{role}-{replica}",
            command=[
                sys.executable, "-m", f"services.{role}", str(run_folder / CONFIG), "--replica", str(replica),
            ],
            output=run_folder / "logs" / f"{role}-{replica}.out",
            environment={**environment, **devices.get(f"{role}-{replica}", {}), MARK: mark},
        )
        for role, replica in processes(sections)
    ]  # fmt: skip


def metrics_endpoints(sections: Sections) -> list[Endpoint]:
    """Where the processes show their metrics; those on any free port, or on none, are left out."""
    return [
        Endpoint(
            name=f"{role}-{replica}",
            host=sections[role].metrics_host,
            port=sections[role].metrics_port + replica,
            key=f"{role}.metrics_port",
        )
        for role, replica in processes(sections)
        if sections[role].metrics_port > 0
    ]


def endpoints(sections: Sections) -> list[Endpoint]:
    """Everything the run listens on."""
    run = sections["run"]
    listeners = [listener("broker", sections["broker"].bind or run.broker)]
    if run.weights:
        listeners.append(listener("weights", sections["weights"].bind or run.weights))
    return [*filter(None, listeners), *metrics_endpoints(sections)]
