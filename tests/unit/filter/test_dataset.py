import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from common.errors import UserError
from services.filter import check
from services.filter.config import FilterConfig
from services.filter.dataset import load, training_rows
from services.filter.schema import Refusal, Row, parse

VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "How many?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "extra_info": {"index": 0, "split": "train"},
}
GSM8K = {"question": "Natalia sold clips. How many?", "answer": "48/2 = <<48/2=24>>24\n#### 72"}
OWN = {"prompt": "How many?", "answer": 72, "data_source": "own"}


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def parsed(raw: Any) -> Row | Refusal:
    return parse(1, raw, verifiers=("math", "exact"), verifier="math")


@pytest.mark.parametrize("raw", [VERL, GSM8K, OWN, {"prompt": "How many?", "gold": "72"}])
def test_every_schema_gives_prompt_and_answer(raw: dict[str, Any]) -> None:
    row = parsed(raw)
    assert isinstance(row, Row)
    assert row.task.gold == "72"
    assert row.chat[0].role == "user"
    assert "How many?" in row.chat[0].content


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"prompt": None, "answer": "1"}, "missing or null"),
        ({"answer": "1"}, "missing or null"),
        ({"prompt": [], "answer": "1"}, "empty"),
        ({"prompt": "", "answer": "1"}, "the prompt is empty"),
        ({"prompt": "x"}, "answer is missing or empty"),
        ({"prompt": "x", "answer": ""}, "answer is missing or empty"),
        ({"prompt": "x", "answer": None}, "answer is missing or empty"),
        (VERL | {"reward_model": {"style": "rule"}}, "answer is missing or empty"),
        ({"prompt": [{"role": "user"}], "answer": "1"}, "lacks `role` or `content`"),
        ({"prompt": "x", "answer": "1", "verifier": "mth"}, "`mth` is unknown; known are math, exact"),
        (["x"], "not an object"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(raw: Any, reason: str) -> None:
    refusal = parsed(raw)
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


def test_an_answer_of_zero_is_an_answer() -> None:
    row = parsed({"prompt": "1 - 1", "answer": 0})
    assert isinstance(row, Row)
    assert row.task.gold == "0"


def test_verl_rows_read_the_same_from_parquet_and_from_jsonl(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([VERL]), tmp_path / "rows.parquet")
    from_parquet = load(tmp_path / "rows.parquet", verifier="math").rows
    assert from_parquet == load(write(tmp_path / "rows.jsonl", [VERL]), verifier="math").rows


def test_duplicates_count_once_and_conflicts_not_at_all(tmp_path: Path) -> None:
    # the reference: P1 three times, P2 with two answers, P3 once
    rows = [("P1", "34"), ("P2", "5"), ("P1", "34"), ("P3", "7"), ("P2", "6"), ("P1", "34")]
    data = load(write(tmp_path / "r.jsonl", [{"prompt": p, "gold": g} for p, g in rows]), verifier="math")
    assert [row.chat[0].content for row in data.rows] == ["P1", "P3"]
    assert [row.number for row in data.duplicates] == [3, 6]
    assert [row.number for row in data.conflicts] == [2, 5]


def test_a_line_that_is_not_json_or_not_utf8_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(OWN).encode() + b"\n{broken\n\n\xff\xfe\n")
    reasons = {refusal.number: refusal.reason for refusal in load(path, verifier="math").refusals}
    assert "not JSON" in reasons[2]
    assert "not UTF-8" in reasons[4]


def test_a_bad_row_stops_the_run_with_file_row_and_remedy(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN, {"prompt": "x", "answer": ""}])
    with pytest.raises(UserError, match=r"rows\.jsonl, row 2: the answer is missing.*dapo data check"):
        training_rows(FilterConfig(data=str(path)))


def test_a_bad_row_is_left_out_when_the_user_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN, {"prompt": "x", "answer": ""}])
    rows, _ = training_rows(FilterConfig(data=str(path), on_bad_row="drop"))
    assert len(rows) == 1


def test_held_out_rows_are_never_trained_and_do_not_depend_on_the_order(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "answer": n} for n in range(30)]
    train, held_out = training_rows(FilterConfig(data=str(write(tmp_path / "a.jsonl", rows)), eval_rows=10))
    _, again = training_rows(FilterConfig(data=str(write(tmp_path / "b.jsonl", rows[::-1])), eval_rows=10))
    assert (len(train), len(held_out)) == (20, 10)
    assert not {row.chat for row in train} & {row.chat for row in held_out}
    assert {row.chat for row in held_out} == {row.chat for row in again}


def test_system_prompt_and_suffix_are_added(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN])
    (row,), _ = training_rows(FilterConfig(data=str(path), system="Be brief.", suffix=" Box it."))
    assert [(m.role, m.content) for m in row.chat] == [("system", "Be brief."), ("user", "How many? Box it.")]


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist: set \\[filter\\] data"):
        load(tmp_path / "absent.jsonl", verifier="math")


def test_check_prints_each_bad_row_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN, OWN, {"prompt": None, "answer": "1"}, {"prompt": "x", "answer": ""}])
    assert check.main([str(path)]) == 1
    printed = capsys.readouterr().out
    assert "usable      1" in printed
    assert "duplicates  1" in printed
    assert "row 3: the prompt is missing or null" in printed
    assert "row 4: the answer is missing or empty" in printed


def test_check_of_a_good_file_passes_and_of_no_file_is_the_users_mistake(tmp_path: Path) -> None:
    assert check.main([str(write(tmp_path / "rows.jsonl", [OWN]))]) == 0
    assert check.main([str(tmp_path / "absent.jsonl")]) == 2
