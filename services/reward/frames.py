"""Messages over a stream socket: four bytes of length, then the bytes; every wait has a deadline.

    send(socket, payload, deadline)      payload = receive(socket, deadline)

A deadline is in seconds of the monotonic clock; None waits for ever. `TimeoutError` when it passes, `EOFError` when
the other side is gone.
"""

import socket
import time

_LENGTH_BYTES = 4
_CHUNK = 1 << 20


def send(stream: socket.socket, payload: bytes, deadline: float | None = None) -> None:
    """Send one message."""
    stream.settimeout(_left(deadline))
    try:
        stream.sendall(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
    except (BrokenPipeError, ConnectionError) as error:
        raise EOFError("the other side is gone") from error


def receive(stream: socket.socket, deadline: float | None = None) -> bytes:
    """The next message."""
    return _read(stream, int.from_bytes(_read(stream, _LENGTH_BYTES, deadline), "big"), deadline)


def _read(stream: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        stream.settimeout(_left(deadline))
        try:
            part = stream.recv(min(size - len(data), _CHUNK))
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError("the other side is gone")
        data += part
    return bytes(data)


def _left(deadline: float | None) -> float | None:
    """Seconds until the deadline; a passed one is a time-out at once."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
