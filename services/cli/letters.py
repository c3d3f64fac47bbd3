"""`dapo dead list|show|retry|drop RUN`: the items that nobody could finish, and what a person decides about them.

    list    queue, id, deliveries and holders of every dead letter
    show    one of them with its content
    retry   back to the front of its queue with a fresh count: does what killed it still do so?
    drop    away for good

The filter gave the place of a dead group to another prompt when it died, so a group that is retried is judged, but not
trained: by now it would be older than the bound allows. `list` and `show` read files; the other two need the broker.
"""

import argparse
import asyncio
import json
import sqlite3
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from common import config
from common.client import connect_to_broker
from common.config import RunConfig
from common.errors import USER_ERROR_EXIT_STATUS, RefusedError, UserError
from common.protocol import Letter

ANSWER_S = 10.0
LONGEST_TEXT = 300


class Dead(NamedTuple):
    """A dead letter as it lies on disk."""

    queue: str
    id: str
    deliveries: int
    holders: list[str]
    segment: int
    offset: int
    lengths: list[int]


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one of the verbs; returns the exit status."""
    arguments = _arguments(argv)
    try:
        _carry_out(arguments)
    except UserError as error:
        print(f"dapo dead: {error}", file=sys.stderr)
        return USER_ERROR_EXIT_STATUS
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dapo dead", description="Look at dead letters and decide about them.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|show|retry|drop")
    for verb, text in (("list", "all of a run"), ("show", "one with its content"),
                       ("retry", "deliver again"), ("drop", "remove for good")):  # fmt: skip
        each = verbs.add_parser(verb, help=text)
        each.add_argument("run", type=Path, help="run folder, for instance runs/demo")
        if verb != "list":
            each.add_argument("ids", nargs="*" if verb != "show" else 1, metavar="ID", help="as `list` shows it")
        if verb in ("retry", "drop"):
            each.add_argument("--all", action="store_true", help="all dead letters of the run")
    return parser.parse_args(argv)


def _carry_out(arguments: argparse.Namespace) -> None:
    letters = read(arguments.run)
    if arguments.verb == "list":
        for dead in letters:
            print(f"{dead.queue:<10} {dead.id:<20} {dead.deliveries:3d} deliveries: {', '.join(dead.holders)}")
        print(f"{len(letters)} dead letters", file=sys.stderr)
        return
    chosen = letters if getattr(arguments, "all", False) else [_named(letters, name) for name in arguments.ids]
    if arguments.verb == "show":
        print(json.dumps(content(arguments.run, chosen[0]), indent=2))
    elif not chosen:
        raise UserError("name the dead letters, or give --all: `dapo dead list` shows them")
    else:
        asyncio.run(_decide(arguments.run, chosen, arguments.verb))
        print(f"{len(chosen)} {'retried' if arguments.verb == 'retry' else 'dropped'}")


def read(run: Path) -> list[Dead]:
    """All dead letters of a run folder; a live broker is not disturbed."""
    path = run / "broker.db"
    if not path.exists():
        raise UserError(f"{path} does not exist: give the folder of a run that has started")
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "SELECT queue, id, deliveries, holders, segment, offset, lengths FROM items WHERE dead=1 ORDER BY seq"
        ).fetchall()
    finally:
        database.close()
    return [Dead(q, i, d, msgspec.msgpack.decode(h), s, o, msgspec.msgpack.decode(n)) for q, i, d, h, s, o, n in rows]


def content(run: Path, dead: Dead) -> dict[str, Any]:
    """A dead letter with its message; array frames as their sizes, long texts cut."""
    with (run / "broker" / f"{dead.segment:06d}.segment").open("rb") as file:
        file.seek(dead.offset)
        header = file.read(dead.lengths[0]) if dead.lengths else b""
    try:
        message = _shortened(msgspec.msgpack.decode(header)) if header else None
    except msgspec.DecodeError as error:
        message = f"not readable: {error}"
    return {
        "queue": dead.queue, "id": dead.id, "deliveries": dead.deliveries, "holders": dead.holders,
        "frame_bytes": dead.lengths, "message": message,
    }  # fmt: skip


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shortened(inner) for inner in value]
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return f"{value[:LONGEST_TEXT]}..." if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def _named(letters: Sequence[Dead], name: str) -> Dead:
    found = [dead for dead in letters if dead.id == name]
    if not found:
        raise UserError(f"no dead letter is named {name}: `dapo dead list` shows them")
    return found[0]


async def _decide(folder: Path, chosen: Sequence[Dead], action: str) -> None:
    run = config.section(config.read(folder / "config.toml"), "run", RunConfig)
    letters = [Letter(queue=dead.queue, id=dead.id, action="drop" if action == "drop" else "retry") for dead in chosen]
    try:
        async with asyncio.timeout(ANSWER_S), connect_to_broker(run, f"supervisor-{uuid.uuid4().hex}") as client:
            await client.give(letters=letters)
    except TimeoutError:
        raise UserError(
            f"the broker of the run does not answer at {run.broker}: start the run with --resume, then decide"
        ) from None
    except RefusedError as error:
        raise UserError(
            f"the broker refused ({error}): somebody else decided meanwhile; see `dapo dead list`"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
