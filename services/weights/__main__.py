"""`dapo weights CONFIG`: serve the weight store of a run."""

import sys
from collections.abc import Sequence

from common.life import serve
from services.weights.config import WeightsConfig
from services.weights.service import run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the weight server; returns the exit status."""
    return serve("weights", WeightsConfig, run, argv)


if __name__ == "__main__":
    sys.exit(main())
