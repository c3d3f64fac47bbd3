"""The broker's socket and its options."""

import zmq

from common.gate import listen
from services.broker.config import BrokerConfig

RECEIVED = 256
"""Messages of one client that wait in memory; then its connection waits."""


def bind(socket: "zmq.Socket[bytes]", address: str, config: BrokerConfig, *, has_keys: bool = False) -> None:
    """Listen."""
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an unreachable client is an error, not silence
    socket.setsockopt(zmq.ROUTER_HANDOVER, 0)  # nobody takes another connection over by claiming its routing id
    socket.setsockopt(zmq.LINGER, 200)
    socket.setsockopt(zmq.SNDHWM, 100_000)
    socket.setsockopt(zmq.RCVHWM, RECEIVED)
    listen(
        socket, address, role="broker", has_keys=has_keys, allow_remote=config.allow_remote,
        max_frame_bytes=config.max_message_bytes,
    )  # fmt: skip
