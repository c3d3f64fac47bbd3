from pathlib import Path

import pytest
import zmq

from common import keys
from common.errors import UserError
from services.cli.keys import main


def test_each_role_gets_a_pair_and_a_listener_admits_all_of_them(tmp_path: Path) -> None:
    assert keys.create(tmp_path) == list(keys.ROLES)
    server = keys.server_keys(str(tmp_path), "broker")
    client = keys.client_keys(str(tmp_path), "reward")
    assert server is not None
    assert client is not None
    assert sorted(server.allowed.values()) == sorted(keys.ROLES)
    assert server.allowed[client.public] == "reward"
    assert client.server == zmq.curve_public(server.secret)


def test_secrets_are_for_their_owner_and_never_printed(tmp_path: Path) -> None:
    keys.create(tmp_path)
    for role in keys.ROLES:
        assert (tmp_path / role / "secret").stat().st_mode & 0o777 == 0o600
    client = keys.client_keys(str(tmp_path), "reward")
    server = keys.server_keys(str(tmp_path), "broker")
    assert client is not None
    assert server is not None
    assert client.secret.decode() not in repr(client)
    assert server.secret.decode() not in repr(server)


def test_making_keys_again_keeps_them_and_rotating_replaces_them(tmp_path: Path) -> None:
    keys.create(tmp_path)
    before = (tmp_path / "learner" / "secret").read_bytes()
    (tmp_path / "reward" / "secret").unlink()
    assert keys.create(tmp_path) == ["reward"]
    assert (tmp_path / "learner" / "secret").read_bytes() == before
    assert keys.create(tmp_path, ["learner"], rotate=True) == ["learner"]
    assert (tmp_path / "learner" / "secret").read_bytes() != before


def test_a_further_key_speaks_for_its_role(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    assert main([str(tmp_path), "--name", "rollout-gpu2"]) == 0
    server = keys.server_keys(str(tmp_path), "broker")
    assert server is not None
    assert "rollout-gpu2" in server.allowed.values()
    assert keys.role_of("rollout-gpu2") == "rollout"


def test_no_folder_means_no_keys() -> None:
    assert keys.server_keys("", "broker") is None
    assert keys.client_keys("", "reward") is None


def test_missing_and_damaged_keys_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        UserError, match=r"reward/secret cannot be read \(No such file.*: make keys with `dapo keys DIR`"
    ):
        keys.client_keys(str(tmp_path), "reward")
    keys.create(tmp_path)
    (tmp_path / "public" / "broker.pub").write_text("short\n")
    with pytest.raises(UserError, match=r"broker\.pub is no CURVE key"):
        keys.client_keys(str(tmp_path), "reward")
    assert main([str(tmp_path), "--name", "judge"]) == 2
    assert "--name judge is no role: give one of broker," in capsys.readouterr().err
