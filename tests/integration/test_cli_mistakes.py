"""A mistake of the user: one sentence that says what is wrong, where, and what to do; exit status 2; no traceback."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROLES = ("broker", "rollout", "reward", "filter", "learner")


class Desk:
    """A folder with a configuration whose model and data are there; nothing in it is ever started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        self.write_rows('{"prompt": "1 + 1 = ?", "answer": "2"}', '{"prompt": "1 + 2 = ?", "answer": "3"}')
        self.config = folder / "c.toml"
        ports = "".join(f"[{role}]\nmetrics_port = -1\n" for role in ROLES if role != "filter")
        self.config.write_text(
            f'[run]\nname = "r"\nmodel = "{folder}/model"\nfolder = "{folder}/runs"\n'
            f'broker = "tcp://127.0.0.1:{free_port()}"\n'
            f'[filter]\nmetrics_port = -1\ndata = "{folder}/rows.jsonl"\n{ports}'
        )

    def write_rows(self, *lines: str) -> None:
        (self.folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def complaint(*words: object) -> str:
    """What `dapo WORDS` says on stderr; it must be one line, with exit status 2 and nothing started."""
    command = [sys.executable, "-m", "services.cli", *map(str, words)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2, answer
    assert "Traceback" not in answer.stderr
    # A service that got as far as its log writes the sentence there too, as JSON.
    lines = [line for line in answer.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, answer.stderr
    assert lines[0].startswith("dapo ")
    return lines[0]


def misspell_a_key(desk: Desk) -> list[str]:
    return ["learner.leaning_rate=1e-3"]


def misspell_a_section(desk: Desk) -> list[str]:
    return ["lerner.lr=1e-3"]


def give_a_word_for_a_number(desk: Desk) -> list[str]:
    return ["run.steps=many"]


def ask_for_groups_of_one(desk: Desk) -> list[str]:
    return ["group_size=1"]


def forget_the_equals_sign(desk: Desk) -> list[str]:
    return ["learner.lr"]


def remove_the_configuration(desk: Desk) -> list[str]:
    desk.config.unlink()
    return []


def break_the_toml(desk: Desk) -> list[str]:
    desk.config.write_text("[run\nname = 3")
    return []


def remove_the_model(desk: Desk) -> list[str]:
    return [f"run.model={desk.folder}/nothing"]


def remove_the_data(desk: Desk) -> list[str]:
    (desk.folder / "rows.jsonl").unlink()
    return []


def leave_out_an_answer(desk: Desk) -> list[str]:
    desk.write_rows('{"prompt": "1 + 1 = ?", "answer": "2"}', '{"prompt": "1 + 2 = ?"}')
    return []


def break_a_row(desk: Desk) -> list[str]:
    desk.write_rows('{"prompt": "1 + 1 = ?", "answer": "2"}', '{"prompt": ')
    return []


def give_two_services_one_port(desk: Desk) -> list[str]:
    return ["filter.metrics_port=40123", "learner.metrics_port=40123"]


def write_no_address(desk: Desk) -> list[str]:
    return ["broker=localhost"]


def resume_nothing(desk: Desk) -> list[str]:
    return ["--resume"]


def keep_a_thesis_in_the_run_folder(desk: Desk) -> list[str]:
    (desk.folder / "runs" / "r").mkdir(parents=True)
    (desk.folder / "runs" / "r" / "thesis.txt").write_text("years of work")
    return ["--fresh"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (misspell_a_key, ["c.toml", "unknown key `leaning_rate` in [learner]"]),
        (misspell_a_section, ["unknown section `lerner`", "did you mean `learner`?"]),
        (give_a_word_for_a_number, ["c.toml", "[run]", "`steps`", "expected `int`"]),
        (ask_for_groups_of_one, ["[run]", "`group_size` must be at least 2"]),
        (forget_the_equals_sign, ["`learner.lr`", "section.key=value"]),
        (remove_the_configuration, ["c.toml does not exist"]),
        (break_the_toml, ["c.toml cannot be read"]),
        (remove_the_model, ["model folder", "nothing does not exist"]),
        (remove_the_data, ["rows.jsonl", "does not exist"]),
        (leave_out_an_answer, ["rows.jsonl", "row 2", "answer"]),
        (break_a_row, ["rows.jsonl", "row 2"]),
        (give_two_services_one_port, ["port 40123 is used by", "metrics_port"]),
        (write_no_address, ["broker address localhost", "tcp://"]),
        (resume_nothing, ["holds no run to resume", "--resume"]),
        (keep_a_thesis_in_the_run_folder, ["is not a run folder", "run.name="]),
    ],
)
def test_a_mistake_is_one_sentence(desk: Desk, make: Callable[[Desk], list[str]], sentence: list[str]) -> None:
    said = complaint("run", desk.config, *make(desk))
    for part in sentence:
        assert part in said
    assert not (desk.folder / "runs" / "r" / "logs").exists(), "something was started"


@pytest.mark.parametrize(("key", "who"), [("run.broker", "broker"), ("filter.metrics_port", "filter-0")])
def test_a_port_in_use_is_one_sentence(desk: Desk, key: str, who: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        value = f"tcp://127.0.0.1:{port}" if key == "run.broker" else port
        said = complaint("run", desk.config, f"{key}={value}")
    assert f"port {port} of {who} is in use" in said
    assert f"{key}=" in said


def test_a_service_started_alone_names_the_same_mistakes(desk: Desk) -> None:
    assert "unknown key `leaning_rate`" in complaint("learner", desk.config, "learner.leaning_rate=1")
    assert "c.toml.old does not exist" in complaint("broker", f"{desk.config}.old")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = complaint("broker", desk.config, f"run.broker=tcp://127.0.0.1:{port}")
    assert f"127.0.0.1:{port} cannot be opened" in said.replace("tcp://", "")


def test_audit_and_data_check_name_a_missing_path(desk: Desk) -> None:
    assert "nowhere" in complaint("audit", desk.folder / "nowhere")
    assert "nowhere.jsonl" in complaint("data", "check", desk.folder / "nowhere.jsonl")
