"""`learner.ranks` processes on this machine, by torchrun's own launcher: started together, ended together.

    dapo learner CONFIG -> torchrun agent -> R x (python -m services.learner CONFIG) with RANK, WORLD_SIZE ...

One that dies ends all; the supervisor or the container starts the whole again, and the checkpoint carries on. On
several machines users start `torchrun ... -m services.learner CONFIG` themselves.
"""

import os
import sys
from collections.abc import Sequence

FAILED = 1


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def launch(ranks: int, argv: Sequence[str]) -> int:
    """Run all ranks to their end; the exit status of the first that failed, or 0."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=ranks, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        run_id="learner", max_restarts=0,
    )  # fmt: skip
    try:
        elastic_launch(config, entrypoint=sys.executable)("-m", "services.learner", *argv)
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else FAILED
    except SignalException:
        return 0
    return 0
