"""`dapo keys DIR`: CURVE key pairs for every role; existing ones are kept, so it may be called at every start.

--name rollout-gpu2   one more key for a role, for instance for the rollouts of another site
--rotate              new keys in place of the old ones: restart every process of the run afterwards
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from common import keys
from common.errors import USER_ERROR_EXIT_STATUS, UserError


def main(argv: Sequence[str] | None = None) -> int:
    """Make the keys; returns the exit status."""
    given = _arguments(argv)
    try:
        made = _make(given.folder, given.name, rotate=given.rotate)
    except UserError as error:
        print(f"dapo keys: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    print(f'{given.folder}: {", ".join(made) if made else "nothing"} made; use it with [run] keys = "{given.folder}"')
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo keys", description="Make the CURVE keys that are missing in a folder.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the keys")
    parser.add_argument("--name", action="append", default=[], help="only this key: a role, or ROLE-NAME")
    parser.add_argument("--rotate", action="store_true", help="replace keys that exist")
    return parser.parse_args(argv)


def _make(folder: Path, names: list[str], *, rotate: bool) -> list[str]:
    for name in names:
        if keys.role_of(name) not in keys.ROLES or "/" in name:
            raise UserError(f"--name {name} is no role: give one of {', '.join(keys.ROLES)}, or ROLE-NAME")
    return keys.create(folder, names or keys.ROLES, rotate=rotate)


if __name__ == "__main__":
    sys.exit(main())
