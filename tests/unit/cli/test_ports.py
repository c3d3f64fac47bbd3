"""Ports are checked before anything is started."""

import socket
from collections.abc import Iterator

import pytest

from common.errors import UserError
from services.cli import ports
from services.cli.ports import Endpoint, check, listener


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def endpoint(port: int, name: str = "rollout-0", host: str = "127.0.0.1") -> Endpoint:
    return Endpoint(name=name, host=host, port=port, key="rollout.metrics_port")


def test_a_port_in_use_is_named_with_the_key_that_moves_it(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "WAIT_S", 0.0)
    with pytest.raises(UserError, match=rf"port {taken} of rollout-0 is in use.*rollout\.metrics_port="):
        check([endpoint(taken)])


def test_a_free_port_passes_and_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    check([endpoint(port)])
    socket.create_server(("127.0.0.1", port)).close()


def test_two_services_on_one_port_are_refused() -> None:
    with pytest.raises(UserError, match="used by reward-0 and rollout-0"):
        check([endpoint(9, "reward-0"), endpoint(9)])


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with pytest.raises(UserError, match=r"cannot listen on 192\.0\.2\.1"):
        check([endpoint(5, host="192.0.2.1")])


@pytest.mark.parametrize("address", ["127.0.0.1:5570", "tcp://127.0.0.1", "tcp://:5570", "tcp://h:99999", "x"])
def test_what_is_no_broker_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="is not one"):
        listener("broker", address)


def test_a_broker_beyond_tcp_needs_no_port() -> None:
    assert listener("broker", "ipc:///tmp/x") is None
