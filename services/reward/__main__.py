"""`dapo reward CONFIG`: judge groups."""

import sys
from collections.abc import Sequence

from common.client import connect_to_broker
from common.life import Process, serve
from services.reward.config import RewardConfig


async def run(process: Process[RewardConfig]) -> None:
    """Start the verifier processes, then judge until cancelled."""
    from services.reward.judges import open_judges
    from services.reward.service import RewardService
    from services.reward.shaping import Shaping

    run, config = process.run, process.config
    shaping = Shaping(
        correct=config.reward_correct,
        wrong=config.reward_wrong,
        max_length=run.max_response_tokens,
        buffer=config.overlong_buffer or max(1, run.max_response_tokens // 5),
        factor=config.overlong_factor,
        ngram=config.repetition_ngram,
    )
    async with (
        open_judges(config, queue_limit=4 * config.workers) as judges,
        connect_to_broker(run, process.name) as client,
    ):
        service = RewardService(
            client=client, judge=judges, shaping=shaping, history=process.history,
            max_groups=config.max_groups, retries=config.retries,
        )  # fmt: skip
        await service.run()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the reward service; returns the exit status."""
    return serve("reward", RewardConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
