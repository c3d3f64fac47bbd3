"""`dapo filter CONFIG`: issue prompts, judge groups, close batches."""

import sys
from collections.abc import Sequence

from common.client import connect_to_broker
from common.life import Process, serve
from services.filter.config import FilterConfig


async def run(process: Process[FilterConfig]) -> None:
    """Read the data and the register, then decide until cancelled."""
    from services.filter.dataset import training_rows
    from services.filter.measures import show_limits
    from services.filter.planner import Planner
    from services.filter.sampling import choose, files
    from services.filter.service import REGISTER, FilterService
    from services.filter.state import loads

    run, config = process.run, process.config
    show_limits(run)
    rows, held_out = training_rows(config, run)
    async with connect_to_broker(run, process.name) as client:
        register = await client.watch(REGISTER).changed()
        state = loads(register.value)
        sampler = choose.choose(config, run, rows, state.sampler, files.read(run.path, state.sampler.file))
        planner = Planner(state, run=run, config=config, rows=rows, held_out=held_out, sampler=sampler)
        service = FilterService(
            client=client,
            planner=planner,
            version=register.version,
            history=process.history,
            folder=run.path,
            steps=run.steps,
            reserve=config.reserve,
            low_keep_rate=config.low_keep_rate,
            excerpts=config.excerpts,
            stall_s=run.stall_s,
        )
        await service.run(window=(run.max_staleness + 1) * run.groups_per_batch + len(held_out))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the filter; returns the exit status."""
    return serve("filter", FilterConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
