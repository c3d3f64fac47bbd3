"""One TOML file per run, one section per service, typed, unknown keys refused.

    tree = read("configs/demo.toml", ["learner.lr=2e-6"])
    run = section(tree, "run", RunConfig)

A section is a frozen dataclass; the type of a field is the type the file must give. Errors are one sentence with file,
section, key and what to do.
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import tomli_w

from common.errors import UserError

SECTIONS = ("run", "broker", "weights", "rollout", "reward", "filter", "learner")

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The sections of a configuration as plain tables, and the file they came from."""

    path: Path
    tables: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Section [run]: what all services must agree on."""

    name: str
    """Name of the run; its folder is `folder`/`name`."""
    model: str
    """Hugging Face folder or hub name of the starting policy."""
    folder: str = "runs"
    """Where run folders are made."""
    seed: int = 0
    """Seed of the prompt order and of every sample."""
    steps: int = 100
    """Batches to train on; the run is done when the policy has this version."""
    groups_per_batch: int = 16
    """B: groups in one learner step."""
    group_size: int = 8
    """G: samples of one prompt."""
    max_staleness: int = 1
    """eta: greatest age, in versions, of a token that is trained on."""
    on_stale: Literal["wait", "drop", "mask"] = "wait"
    """What happens when a group would turn too old: wait for it in time, drop it, or train only its young tokens."""
    temperature: float = 1.0
    """Sampling temperature; the learner's log-probabilities use the same."""
    max_prompt_tokens: int = 512
    """Longest prompt after the chat template."""
    chat_template: str = ""
    """Jinja file that replaces the chat template of the model's tokenizer; empty: the model's own."""
    max_response_tokens: int = 1024
    """Lmax: longest response, in tokens."""
    broker: str = "tcp://127.0.0.1:5570"
    """Address of the broker."""
    keys: str = ""
    """Folder of CURVE keys, made by `dapo keys`; empty: no keys, and no listening beyond this machine."""
    weights: str = ""
    """Address of the weight server, for rollouts that cannot read the learner's folder; empty: there is none."""
    heartbeat_s: float = 1.0
    """Seconds between the heartbeats of a client."""
    lease_s: float = 10.0
    """Silence after which a client's work is given to another."""
    stall_s: float = 1800.0
    """Seconds without progress, although there is work, after which the run ends with the cause; reported after a
    third. Must exceed the time of the longest sample; 0: never."""
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = ()
    """Where `dapo run` also puts the numbers of metrics.jsonl; needs `pip install 'dapo[track]'`."""

    @property
    def path(self) -> Path:
        """The run folder."""
        return Path(self.folder) / self.name

    @property
    def template_text(self) -> str:
        """The chat template that replaces the model's; empty if none does."""
        if not self.chat_template:
            return ""
        try:
            return Path(self.chat_template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"[run] chat_template {self.chat_template} cannot be read: {error}") from error

    def __post_init__(self) -> None:
        """Refuse values that no service could work with."""
        for key in ("steps", "groups_per_batch", "max_prompt_tokens", "max_response_tokens"):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` must be at least 1")
        if self.group_size < 2:
            raise ValueError("`group_size` must be at least 2: an advantage compares the samples of a group")
        if self.stall_s < 0:
            raise ValueError("`stall_s` must be 0 or more")
        if self.max_staleness < 0:
            raise ValueError("`max_staleness` must be 0 or more")
        if self.temperature <= 0:
            raise ValueError("`temperature` must be above 0: training needs samples that differ")


def read(path: str | Path, overrides: Sequence[str] = ()) -> Tree:
    """Read a TOML file and apply `section.key=value` overrides (a bare `key=value` means [run]).

    Raises `UserError` for a missing file, broken TOML, an unknown section or a malformed override.
    """
    path = Path(path)
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"configuration {path} does not exist: give the path of a TOML file, see configs/") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"configuration {path} cannot be read: {error}") from error
    for name, table in tables.items():
        if name not in SECTIONS:
            raise UserError(f"{path}: unknown section [{name}]{_nearest(name, SECTIONS)}")
        if not isinstance(table, dict):
            raise UserError(f"{path}: `{name}` stands outside a section: put it under one of {_bracketed(SECTIONS)}")
    for override in overrides:
        _apply(tables, override)
    return Tree(path=path, tables=tables)


def section(tree: Tree, name: str, kind: type[C]) -> C:
    """The section `name` as an instance of the dataclass `kind`; raises `UserError` naming file, section and key."""
    table = tree.tables.get(name, {})
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise UserError(f"{tree.path}: unknown key `{key}` in [{name}]{_nearest(key, known)}")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{tree.path}: [{name}] {_readable(str(error))}") from error


def write(path: Path, sections: Mapping[str, Any]) -> None:
    """Write the resolved configuration (dataclasses by section name) as TOML."""
    path.write_text(_dumped(sections), encoding="utf-8")


def resolved(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Every value, defaults too, as it comes back from a file."""
    return tomllib.loads(_dumped(sections))


def _dumped(sections: Mapping[str, Any]) -> str:
    """As TOML. msgspec alone would leave out the defaults of the dataclasses that it has decoded."""
    tables = {name: msgspec.to_builtins(dataclasses.asdict(value)) for name, value in sections.items()}
    return tomli_w.dumps(_without_none(tables))


def _apply(tables: dict[str, Any], override: str) -> None:
    """Set one `section.key=value` in the tables; the value is TOML, or a bare string."""
    key, equals, text = override.partition("=")
    name, dot, field = key.strip().partition(".")
    if not dot:
        name, field = "run", name
    if not equals or not field:
        raise UserError(f"override `{override}` is not of the form section.key=value, for instance learner.lr=2e-6")
    if name not in SECTIONS:
        raise UserError(f"override `{override}`: unknown section `{name}`{_nearest(name, SECTIONS)}")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    tables.setdefault(name, {})[field] = value


def _nearest(word: str, known: Sequence[str]) -> str:
    """A hint: the nearest known word, or all of them."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; known are {', '.join(known)}"


def _bracketed(names: Sequence[str]) -> str:
    return ", ".join(f"[{name}]" for name in names)


def _readable(error: str) -> str:
    """msgspec's message with `$.key` turned into the key's name."""
    text, at, path = error.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    return f"key `{key}`: {text[:1].lower()}{text[1:]}" if at and key else f"{text[:1].lower()}{text[1:]}"


def _without_none(table: Any) -> Any:
    if isinstance(table, dict):
        return {key: _without_none(value) for key, value in table.items() if value is not None}
    return table
