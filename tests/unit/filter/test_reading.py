from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from common.errors import UserError
from services.filter import reading
from services.filter.reading import Unreadable


def rows(path: Path) -> dict[int, Any]:
    return {number: raw.reason if isinstance(raw, Unreadable) else raw for number, raw in reading.rows(path)}


def test_a_line_that_cannot_be_read_keeps_its_number_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{broken\n\n\xff\xfe\n{"a": ' + b"9" * 5000 + b'}\n{"a": 5}')
    read = rows(path)
    assert read[1] == {"a": 1}
    assert "not JSON" in read[2]
    assert "not UTF-8 (byte 0 of the line)" in read[4]
    assert "not JSON" in read[5]  # Python refuses to convert 5,000 digits
    assert read[6] == {"a": 5}
    assert 3 not in read


def test_nesting_without_end_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("[" * 200_000)
    assert "not JSON" in rows(path)[1]


def test_a_json_array_is_numbered_from_one_and_a_json_file_of_lines_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[\n{"a": 1}, {"a": 2}]')
    assert rows(path) == {1: {"a": 1}, 2: {"a": 2}}
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert rows(path) == {1: {"a": 1}, 2: {"a": 2}}


def test_csv_rows_are_numbered_without_the_header_whatever_their_fields_hold(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    long = "x" * 200_000  # Python's own limit of a field is 131,072
    path.write_bytes(f'\ufeffprompt,answer\r\n"two\nlines, and ""quotes""",1\r\n{long},2\r\nlacks\r\n'.encode())
    assert rows(path) == {
        1: {"prompt": 'two\nlines, and "quotes"', "answer": "1"}, 2: {"prompt": long, "answer": "2"},
        3: {"prompt": "lacks", "answer": None},
    }  # fmt: skip


def test_a_csv_row_that_cannot_be_read_keeps_its_number_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1,2,3\n\xff,2\n4,5\n")
    assert rows(path) == {1: "it has more fields than the header", 2: "it is not UTF-8", 3: {"a": "4", "b": "5"}}


def test_parquet_is_known_by_its_bytes_and_numbered_across_batches(tmp_path: Path) -> None:
    path = tmp_path / "rows.data"
    pyarrow.parquet.write_table(pyarrow.table({"a": list(range(2500))}), path)
    read = rows(path)
    assert (len(read), read[1], read[2500]) == (2500, {"a": 0}, {"a": 2499})


def test_a_parquet_row_that_is_not_utf8_spoils_no_other(tmp_path: Path) -> None:
    offsets, data = pyarrow.array([0, 1, 2, 3], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"a\xffc")
    texts = pyarrow.Array.from_buffers(pyarrow.utf8(), 3, [None, offsets, data])
    pyarrow.parquet.write_table(pyarrow.table({"a": texts}), tmp_path / "rows.parquet")
    read = rows(tmp_path / "rows.parquet")
    assert (read[1], read[3]) == ({"a": "a"}, {"a": "c"})
    assert "not UTF-8" in read[2]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "absent.jsonl",
            None,
            "does not exist: give the path of a JSONL, Parquet or CSV file, or the name of",
        ),
        ("folder", "", "cannot be read: Is a directory"),
        ("torn.parquet", "PAR1 and no more", "cannot be read as Parquet"),
        ("torn.json", '[{"a": 1}, ', "cannot be read as JSON"),
        ("rows.parquet", '{"a": 1}', "cannot be read as Parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, name: str, content: str | None, sentence: str
) -> None:
    path = tmp_path / name
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=f"{name} {sentence}"):
        list(reading.rows(path))
