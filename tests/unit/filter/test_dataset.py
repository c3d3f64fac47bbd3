import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from prometheus_client import REGISTRY

from common.errors import UserError
from services.filter.config import FilterConfig
from services.filter.dataset import load, training_rows
from services.filter.duplicates import Found
from tests.unit.filter.test_schema import GSM8K, OWN, VERL

EMPTY = {"prompt": "x", "answer": ""}


def found(path: Path) -> Found:
    return load([str(path)])[0].found


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_verl_rows_read_the_same_from_parquet_and_from_jsonl(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([VERL]), tmp_path / "rows.parquet")
    from_parquet = found(tmp_path / "rows.parquet").rows
    assert len(from_parquet) == 1
    assert from_parquet == found(write(tmp_path / "rows.jsonl", [VERL])).rows


def test_raw_gsm8k_is_trained_on_without_conversion(tmp_path: Path) -> None:
    ((row,), _) = training_rows(FilterConfig(data=str(write(tmp_path / "rows.jsonl", [GSM8K]))))
    assert (row.task.gold, row.task.verifier) == ("72", "math")


def test_duplicates_count_once_and_conflicts_not_at_all(tmp_path: Path) -> None:
    # num-d11: P1 three times, P2 with two answers, P3 once
    rows = [("P1", "34"), ("P2", "5"), ("P1", "34"), ("P3", "7"), ("P2", "6"), ("P1", "34")]
    (data,) = load([str(write(tmp_path / "r.jsonl", [{"prompt": p, "gold": g} for p, g in rows]))])
    assert [row.chat[0].content for row in data.found.rows] == ["P1", "P3"]
    assert (data.found.duplicates, data.found.conflicts, data.num_rows) == ([3, 6], [2, 5], 6)


def test_a_third_answer_after_two_that_agree_is_a_conflict(tmp_path: Path) -> None:
    rows = [{"prompt": "P", "gold": gold} for gold in ("1", "1", "2", "1")]
    data = found(write(tmp_path / "r.jsonl", rows))
    assert (data.rows, data.duplicates, data.conflicts) == ([], [], [1, 2, 3, 4])


def test_a_file_that_repeats_its_rows_has_an_epoch_of_the_unique_ones(tmp_path: Path) -> None:
    # D34: each row three times
    rows = [{"prompt": f"P{n % 10}", "gold": n % 10} for n in range(30)]
    train, _ = training_rows(FilterConfig(data=str(write(tmp_path / "r.jsonl", rows))))
    assert len(train) == 10


def test_a_bad_row_stops_the_run_with_file_row_and_remedy(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN, EMPTY, "{broken"])
    sentence = r"rows\.jsonl, row 2: the answer is missing.*\(2 such rows in all\).*dapo data check .*rows\.jsonl"
    with pytest.raises(UserError, match=sentence):
        training_rows(FilterConfig(data=str(path)))


def test_a_bad_row_is_left_out_and_counted_when_the_user_says_so(tmp_path: Path) -> None:
    # D05: golds "" and null are no credit for anybody, 42 is "42"
    golds = ["", None, 42]
    path = write(tmp_path / "rows.jsonl", [{"prompt": f"P{n}", "answer": gold} for n, gold in enumerate(golds)])
    rows, _ = training_rows(FilterConfig(data=str(path), on_bad_row="drop"))
    assert [row.task.gold for row in rows] == ["42"]
    assert REGISTRY.get_sample_value("dapo_filter_rows", {"fate": "refused"}) == 2


def test_nothing_to_train_on_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [EMPTY])
    with pytest.raises(UserError, match="has no row to train on: see `dapo data check"):
        training_rows(FilterConfig(data=str(path), on_bad_row="drop"))


def test_held_out_rows_are_never_trained_and_do_not_depend_on_the_order(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "answer": n} for n in range(30)]
    train, held_out = training_rows(FilterConfig(data=str(write(tmp_path / "a.jsonl", rows)), eval_rows=10))
    _, again = training_rows(FilterConfig(data=str(write(tmp_path / "b.jsonl", rows[::-1])), eval_rows=10))
    assert (len(train), len(held_out)) == (20, 10)
    assert not {row.chat for row in train} & {row.chat for row in held_out}
    assert {row.chat for row in held_out} == {row.chat for row in again}


def test_a_prompt_of_the_evaluation_file_is_not_trained(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [{"prompt": f"P{n}", "answer": n} for n in range(5)])
    held = write(tmp_path / "held.jsonl", [{"prompt": "P3", "answer": 3}, {"prompt": "Q", "answer": 1}])
    rows, held_out = training_rows(FilterConfig(data=str(train), eval_data=str(held)))
    assert [row.chat[0].content for row in rows] == ["P0", "P1", "P2", "P4"]
    assert len(held_out) == 2


def test_a_prompt_that_is_evaluated_is_not_trained_with_other_spaces_either(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", [{"prompt": "P  3\n", "answer": 3}, {"prompt": "P4", "answer": 4}])
    held = write(tmp_path / "held.jsonl", [{"prompt": "P 3", "answer": 3}])
    rows, _ = training_rows(FilterConfig(data=str(train), eval_data=str(held)))
    assert [row.chat[0].content for row in rows] == ["P4"]


def test_of_several_sets_each_prompt_counts_once_and_the_set_can_be_the_category(tmp_path: Path) -> None:
    a = write(tmp_path / "easy.jsonl", [{"prompt": f"P{n}", "answer": n} for n in range(4)])
    b = write(tmp_path / "hard.jsonl", [{"prompt": f"P{n}", "answer": max(n, 3)} for n in range(2, 6)])
    sets = load([str(a), str(b)])
    # P2 has another answer in b, P3 the same one
    assert [one.found.conflicts for one in sets] == [[3], [1]]
    assert [one.found.duplicates for one in sets] == [[], [2]]
    rows, _ = training_rows(FilterConfig(data=(str(a), str(b)), category="set"))
    assert [(row.chat[0].content, row.category) for row in rows] == [
        ("P0", "easy"), ("P1", "easy"), ("P3", "easy"), ("P4", "hard"), ("P5", "hard"),
    ]  # fmt: skip


def test_any_field_can_be_the_category_inside_an_object_too(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN | {"extra_info": {"level": 5}}, {"prompt": "other", "answer": 1}])
    rows, _ = training_rows(FilterConfig(data=str(path), category="extra_info.level"))
    assert [row.category for row in rows] == ["5", "other"]
    rows, _ = training_rows(FilterConfig(data=str(path)))
    assert [row.category for row in rows] == ["own", "other"]


def test_system_prompt_and_suffix_are_added_to_both_kinds_of_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN, OWN | {"prompt": "How few?"}])
    for rows in training_rows(FilterConfig(data=str(path), eval_rows=1, system="Be brief.", suffix=" Box it.")):
        ((system, user),) = [row.chat for row in rows]
        assert (system.role, system.content, user.role) == ("system", "Be brief.", "user")
        assert user.content.endswith("? Box it.")


def test_a_system_prompt_of_the_row_stays_and_the_suffix_goes_to_the_last_user_message(tmp_path: Path) -> None:
    turns = [("system", "Own."), ("user", "A"), ("assistant", "B"), ("user", "C")]
    row = {"prompt": [{"role": role, "content": text} for role, text in turns], "answer": 1}
    path = write(tmp_path / "rows.jsonl", [row])
    ((dressed,), _) = training_rows(FilterConfig(data=str(path), system="Be brief.", suffix="!"))
    assert [m.content for m in dressed.chat] == ["Own.", "A", "B", "C!"]
