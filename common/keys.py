"""CURVE key pairs in files: who may listen, who may connect, and as what.

    DIR/ROLE/secret           the secret key of a role, 40 characters of Z85; only that role's processes need the folder
    DIR/public/NAME.pub       the public keys, which everybody may know

A listener admits the keys in `public/`, and the part of NAME before the first `-` is the role that a key speaks for:
`rollout.pub`, `rollout-gpu2.pub`. Keys are read at the start of a process, so a key is exchanged by writing the file
and restarting who uses it. Source of the scheme: CurveZMQ (rfc.zeromq.org/spec/26), "ironhouse" with an allow list.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from common.errors import UserError

log = logging.getLogger(__name__)

ROLES = ("broker", "weights", "rollout", "reward", "filter", "learner", "supervisor", "evaluation")
"""Who has a key. `broker` and `weights` listen; `supervisor` is `dapo run`, `evaluation` is `dapo eval`."""
SECRET, PUBLIC = "secret", "public"
Z85 = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True, kw_only=True)
class ServerKeys:
    """What a listener needs."""

    secret: bytes = field(repr=False)
    allowed: Mapping[bytes, str]
    """Public key -> name of the key."""


@dataclass(frozen=True, kw_only=True)
class ClientKeys:
    """What a client needs."""

    public: bytes
    secret: bytes = field(repr=False)
    server: bytes
    """The listener's public key: nobody else is spoken to."""


def role_of(name: str) -> str:
    """The role that a key, or a process, of this name belongs to."""
    return name.partition("-")[0]


def create(folder: Path, names: Sequence[str] = ROLES, *, rotate: bool = False) -> list[str]:
    """Make the key pairs that are missing, or all; returns the names of those made."""
    made = []
    for name in names:
        secret, public = folder / name / SECRET, folder / PUBLIC / f"{name}.pub"
        if rotate or not (secret.exists() and public.exists()):
            public_key, secret_key = zmq.curve_keypair()
            _write(secret, secret_key, mode=0o600)
            _write(public, public_key, mode=0o644)
            made.append(name)
    return made


def server_keys(folder: str, role: str) -> ServerKeys | None:
    """The keys of a listener; None if `folder` is empty, which means no keys. Raises `UserError`."""
    if not folder:
        return None
    files = sorted((Path(folder) / PUBLIC).glob("*.pub"))
    return ServerKeys(secret=_read(Path(folder) / role / SECRET), allowed={_read(path): path.stem for path in files})


def client_keys(folder: str, role: str, *, server: str = "broker") -> ClientKeys | None:
    """The keys of a client of `server`; None if `folder` is empty. Raises `UserError`."""
    if not folder:
        return None
    secret = _read(Path(folder) / role / SECRET)
    return ClientKeys(
        public=zmq.curve_public(secret), secret=secret, server=_read(Path(folder) / PUBLIC / f"{server}.pub")
    )


def _read(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"[run] keys: {path} cannot be read ({error.strerror}): make keys with `dapo keys DIR`"
        ) from error
    if not Z85.fullmatch(key):
        raise UserError(f"[run] keys: {path} is no CURVE key (40 characters of Z85): make keys with `dapo keys DIR`")
    if path.name == SECRET and path.stat().st_mode & 0o077:
        log.warning("secret key is readable by others", extra={"file": str(path)})
    return key


def _write(path: Path, key: bytes, *, mode: int) -> None:
    """Write beside the place and rename; nobody else can open a secret in between."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)
        partial.touch(mode=mode)
        partial.write_bytes(key + b"\n")
        partial.rename(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): choose a folder that you may write") from error
