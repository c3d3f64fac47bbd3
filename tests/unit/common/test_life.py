import pytest

from common.life import arguments, replica_name


@pytest.mark.parametrize(
    ("given", "host", "name"),
    [("3", "box", "3"), ("host", "3f2abc", "3f2abc"), ("host", "123456789012", "host-123456789012")],
)
def test_a_replica_named_after_its_host_is_never_a_number(given: str, host: str, name: str) -> None:
    # A number would move its metrics port; a container's name may consist of digits.
    assert replica_name(given, host=host) == name


def test_the_command_line_knows_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "pod-7")
    assert arguments("rollout", ["c.toml", "--replica", "host"]).replica == "pod-7"
    assert arguments("rollout", ["c.toml"]).replica == "0"
