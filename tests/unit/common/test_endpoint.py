import socket
import struct
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from common import endpoint
from common.endpoint import Server
from common.health import SILENCE_S, Health


class ManualClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(now=clock)


@pytest.fixture
def server(health: Health) -> Iterator[Server]:
    server = endpoint.serve(0, "127.0.0.1", health)
    yield server
    server.shutdown()
    server.server_close()


def get(server: Server, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{server.server_address[1]}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_process_whose_loops_turn_is_well(server: Server, health: Health, clock: ManualClock) -> None:
    health.beat("events")
    clock.now += SILENCE_S
    assert get(server, "/healthz") == (200, "well")


def test_one_stuck_loop_among_others_is_named(server: Server, health: Health, clock: ManualClock) -> None:
    health.beat("broker")
    clock.now += 45  # beyond SILENCE_S
    health.beat("events")
    assert get(server, "/healthz") == (503, "loop broker has not turned for 45 s")


def test_a_process_that_has_not_begun_is_not_well(server: Server) -> None:
    assert get(server, "/healthz") == (503, "starting")


def test_every_other_path_shows_the_metrics(server: Server, health: Health) -> None:
    health.beat("events")
    status, body = get(server, "/metrics")
    assert status == 200
    assert 'dapo_loop_beat_timestamp_seconds{loop="events"}' in body


def test_the_check_of_a_container_follows_the_answer(
    server: Server, health: Health, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    port = str(server.server_address[1])
    health.beat("events")
    assert endpoint.main([port]) == 0
    clock.now += 31
    assert endpoint.main([port]) == 1
    assert endpoint.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_check_fails_where_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert endpoint.main([str(port)]) == 1
    assert "refused" in capsys.readouterr().err


def test_a_caller_who_does_not_wait_leaves_no_traceback(
    server: Server, health: Health, capfd: pytest.CaptureFixture[str]
) -> None:
    health.beat("events")
    for _ in range(20):
        with socket.create_connection(server.server_address[:2]) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            caller.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert get(server, "/healthz") == (200, "well")
    assert "Traceback" not in capfd.readouterr().err
