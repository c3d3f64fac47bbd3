"""`dapo broker CONFIG`: the queues of a run."""

import sys
from collections.abc import Sequence

from common.life import serve
from services.broker.config import BrokerConfig
from services.broker.service import run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the broker; returns the exit status."""
    return serve("broker", BrokerConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
