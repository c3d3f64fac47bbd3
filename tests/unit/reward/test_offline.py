import json
from pathlib import Path

import pytest

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
