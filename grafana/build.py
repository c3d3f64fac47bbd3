"""`python -m grafana.build`: write the dashboards as JSON into grafana/dashboards/, where Grafana is told to look.

The JSON is committed; a test fails if it is not what this writes.
"""

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import numerics, pipeline, rewards, run, sampling

FOLDER = Path(__file__).parent / "dashboards"
BOARDS = {"run": run, "pipeline": pipeline, "numerics": numerics, "sampling": sampling, "rewards": rewards}


def texts() -> dict[str, str]:
    """File name -> JSON."""
    return {f"{name}.json": _json(board.dashboard().build()) for name, board in BOARDS.items()}


def _json(board: object) -> str:
    return json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(board)), indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
