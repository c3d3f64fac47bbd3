"""Whether the addresses of a run are free, asked before anything is started."""

import errno
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from common.errors import UserError

WAIT_S = 3.0
"""A run that was killed a moment ago still has its ports until its guard has ended it."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An address that one service will listen on."""

    name: str
    """Whose, for instance `rollout-1`."""
    host: str
    port: int
    key: str
    """Configuration key that moves it."""


def listener(name: str, address: str) -> Endpoint | None:
    """Of the broker or the weight server; None if it is not TCP. Raises `UserError` for an address that is none."""
    parts = urlsplit(address)
    if parts.scheme in ("ipc", "inproc"):
        return None
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "tcp" or not host or not port:
        raise UserError(f'{name} address {address} is not one: write [run] {name} = "tcp://127.0.0.1:5570" or the like')
    return Endpoint(name=name, host="" if host == "*" else host, port=port, key=f"run.{name}")


def check(endpoints: Sequence[Endpoint]) -> None:
    """Raise `UserError` if two endpoints are the same or one is taken."""
    seen: dict[int, Endpoint] = {}
    for endpoint in endpoints:
        if other := seen.get(endpoint.port):
            raise UserError(f"port {endpoint.port} is used by {other.name} and {endpoint.name}: change {endpoint.key}")
        seen[endpoint.port] = endpoint
    deadline = time.monotonic() + WAIT_S
    for endpoint in endpoints:
        while (cause := _cause(endpoint)) == errno.EADDRINUSE and time.monotonic() < deadline:
            time.sleep(0.1)
        if cause == errno.EADDRINUSE:
            raise UserError(
                f"port {endpoint.port} of {endpoint.name} is in use, perhaps by another run: "
                f"stop that, or choose another with {endpoint.key}=..."
            )
        if cause:
            raise UserError(
                f"{endpoint.name} cannot listen on {endpoint.host}:{endpoint.port} ({os.strerror(cause)}): "
                f"change {endpoint.key}"
            )


def _cause(endpoint: Endpoint) -> int:
    """0 if the address is free, else the error number."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0
