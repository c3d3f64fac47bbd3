import socket
from pathlib import Path

import pytest
import zmq

from common.errors import UserError
from common.gate import is_local
from services.broker.config import BrokerConfig
from services.broker.service import bind as bind_broker


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("tcp://127.0.0.1:5570", True),
        ("tcp://127.8.8.8:1", True),
        ("tcp://localhost:5570", True),
        ("tcp://[::1]:5570", True),
        ("ipc:///tmp/x", True),
        ("inproc://x", True),
        ("tcp://0.0.0.0:5570", False),
        ("tcp://*:5570", False),
        ("tcp://[::]:5570", False),
        ("tcp://10.0.0.1:5570", False),
        ("tcp://localhost.example.org:5570", False),
        ("tcp://[::1", False),
        ("", False),
    ],
)
def test_only_loopbackis_local(address: str, local: bool) -> None:
    assert is_local(address) is local


def bind(address: str, *, has_keys: bool = False, **config: bool) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        bind_broker(router, address, BrokerConfig(**config), has_keys=has_keys)  # type: ignore[arg-type]


def test_a_remote_address_is_refused_without_keys_unless_the_configuration_vouches_for_the_network() -> None:
    with pytest.raises(
        UserError, match=r"reachable from other machines: make keys .* set \[broker\] allow_remote = true"
    ):
        bind("tcp://0.0.0.0:*")
    bind("tcp://0.0.0.0:*", allow_remote=True)
    bind("tcp://0.0.0.0:*", has_keys=True)


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=rf"address tcp://127.0.0.1:{port} cannot be opened \(Address already"):
            bind(f"tcp://127.0.0.1:{port}")


def test_the_socket_bounds_a_message_and_tells_of_unreachable_clients(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        bind_broker(router, f"ipc://{tmp_path}/s", BrokerConfig(max_message_bytes=1 << 20))
        assert router.getsockopt(zmq.MAXMSGSIZE) == 1 << 20
        with pytest.raises(zmq.ZMQError, match="unreachable"):
            router.send_multipart([b"nobody", b""], zmq.NOBLOCK)


@pytest.mark.parametrize(("key", "value"), [("max_deliveries", 0), ("segment_bytes", 1000)])
def test_values_that_cannot_work_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"`{key}` must be at least"):
        BrokerConfig(**{key: value})  # type: ignore[arg-type]
