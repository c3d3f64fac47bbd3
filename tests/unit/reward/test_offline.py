import json
from pathlib import Path
from typing import Any

import pytest

from common.messages import VERIFIERS, Task
from services.reward.explain import steps
from services.reward.offline import main


def test_verdicts_come_in_input_order_with_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "answers.jsonl"
    rows = [
        {"id": "a", "output": r"\boxed{2}", "gold": "2"},
        {"id": "b", "output": r"\boxed{3}", "gold": 2},
        {"id": "c", "output": r"\boxed{3}", "gold": None},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main([str(path), "--verifier", "math"]) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [(line["id"], line["verdict"]) for line in lines] == [("a", "correct"), ("b", "wrong"), ("c", "error")]
    assert set(lines[0]) == {"id", "verdict", "score", "reason", "seconds"}
    assert "3 verified: 1 correct, 1 wrong, 1 errors, 0 time-outs" in printed.err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [("{broken", "row 1: it is not JSON"), ('{"id": 1}', "row 1: `output` is missing")],
)
def test_a_bad_row_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    assert main([str(path)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "absent.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def written(tmp_path: Path, *rows: dict[str, Any]) -> str:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_name_their_verifiers_and_the_summary_has_scores_f1_and_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"verifier": "classification", "metadata": {"labels": ["spam", "ham"]}}
    file = written(
        tmp_path,
        {"output": "Answer: B", "answer": "B", "verifier": "choice"},
        {"output": "a b", "answer": "a b c d", "verifier": "rouge"},
        {"output": "spam", "gold": "spam"} | labels, {"output": "spam", "gold": "ham"} | labels,
        {"output": "x", "gold": "(", "verifier": "regex"},
    )  # fmt: skip
    assert main([file]) == 0
    printed = capsys.readouterr()
    verdicts = [json.loads(line)["verdict"] for line in printed.out.splitlines()]
    assert verdicts == ["correct", "correct", "correct", "wrong", "error"]
    # ROUGE-L 2 * 2 / (2 + 4); mean of 1, 2/3, 1, 0. F1 of spam 2/3, of ham 0
    assert printed.err.splitlines()[1:] == [
        "mean score 0.6667", "macro F1 of the classifications 0.3333", "errors: bad_gold 1",
    ]  # fmt: skip


def test_one_row_can_be_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, {"id": "a", "output": r"So \boxed{\dfrac12}", "gold": "0.5"}, {"id": 7, "output": ""})
    assert main([file, "--explain", "a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["verifier: math", "gold answer: 0.5", r"final answer, from box: \dfrac12"]
    assert lines[-1].startswith("verdict: correct (same as box), score 1, ")
    assert main([file, "--explain", "7", "--verifier", "exact"]) == 0
    assert main([file, "--explain", "b"]) == 2
    assert "no row has the id b; the first has a" in capsys.readouterr().err


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_every_verifier_has_steps_to_show(verifier: str) -> None:
    task = Task(verifier=verifier, gold="A", metadata="{}")
    assert dict(steps("Answer: A", task))["verifier"] == verifier


def test_a_row_whose_tests_cannot_be_read_is_explained_as_such() -> None:
    shown = dict(steps("print(1)", Task(verifier="code", tests="[")))
    assert shown["what the row asks for cannot be read"].startswith("the tests are not JSON")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--verifier", "mth"], "--verifier: verifier `mth` is unknown; known are math, exact"),
        (["--verifier", "judge"], r"verifier `judge` is asked for, but there is no table [reward.judge]"),
        (["--verifier", "python:absent:f"], "[reward] functions: `python:absent:f` cannot be imported"),
        (["--config", "absent.toml"], "configuration absent.toml does not exist"),
        (["--workers", "0"], "`workers` must be at least 1"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert main([written(tmp_path, {"output": "1", "gold": "1"}), *options]) == 2
    assert sentence in capsys.readouterr().err


def test_a_row_cannot_run_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"output": "1", "gold": "1", "verifier": "python:tests.unit.reward.functions:polite"}
    assert main([written(tmp_path, row)]) == 2
    assert "[reward] functions does not list it" in capsys.readouterr().err
    assert main([written(tmp_path, row), "--verifier", str(row["verifier"])]) == 0


def test_a_configuration_gives_functions_and_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "python:tests.unit.reward.functions:hangs"
    config = tmp_path / "c.toml"
    config.write_text(f'[reward]\nfunctions = ["{name}"]\ntimeout_s = 0.5\nworkers = 1\n')
    file = written(tmp_path, {"output": "hang", "verifier": name}, {"output": "fine", "verifier": name})
    assert main([file, "--config", str(config)]) == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["reason"] for line in printed.out.splitlines()] == ["timeout", "score 1.000"]
    assert "1 correct, 1 wrong, 0 errors, 1 time-outs" in printed.err
