from pathlib import Path

import pytest

from services.filter import check
from tests.unit.filter.models import save_words
from tests.unit.filter.test_dataset import EMPTY, write
from tests.unit.filter.test_schema import OWN, VERL


def checked(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    status = check.main([str(path), *options])
    return status, capsys.readouterr().out


def test_check_prints_each_bad_row_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        OWN,
        OWN,
        {"prompt": None, "answer": "1"},
        EMPTY,
        {"prompt": "c", "answer": 1},
        {"prompt": "c", "answer": 2},
        OWN | {"prompt": "How  many?\r\n"},
    ]
    status, printed = checked(write(tmp_path / "rows.jsonl", rows), capsys)
    assert status == 1
    counts = dict(line.split()[:2] for line in printed.splitlines()[1:7])
    assert counts == {"rows": "7", "unique": "1", "duplicates": "1", "near": "1", "conflicts": "2", "refused": "2"}
    assert printed.splitlines()[7:] == [
        "row 3: the prompt is missing or null",
        "row 4: the answer is missing or empty: give `answer`, `gold` or `tests`",
        "row 5: the same prompt has another answer in another row",
        "row 6: the same prompt has another answer in another row",
    ]


def test_check_passes_a_good_file_and_one_that_only_repeats_itself(tmp_path: Path) -> None:
    assert check.main([str(write(tmp_path / "rows.jsonl", [OWN]))]) == 0
    assert check.main([str(write(tmp_path / "rows.jsonl", [OWN] * 3))]) == 0


def test_check_of_no_file_is_the_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(tmp_path / "absent.jsonl")]) == 2
    assert "absent.jsonl does not exist" in capsys.readouterr().err


def test_check_fails_a_file_without_rows(tmp_path: Path) -> None:
    assert check.main([str(write(tmp_path / "rows.jsonl", []))]) == 1


def test_check_shows_the_first_bad_rows_or_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [EMPTY] * 25)
    assert "... and 5 more" in checked(path, capsys)[1]
    assert "row 25: " in checked(path, capsys, "--all")[1]


def test_check_can_be_told_the_verifier_as_the_run_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [VERL | {"data_source": "acme/riddles"}])
    status, printed = checked(path, capsys)
    assert status == 1
    assert "row 1: data_source `acme/riddles` is unknown" in printed
    assert checked(path, capsys, "--verifier", "exact")[0] == 0


def test_several_sets_have_a_table_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (write(tmp_path / f"{name}.jsonl", rows) for name, rows in (("a", [OWN]), ("b", [OWN, EMPTY])))
    status, printed = checked(one, capsys, str(other))
    assert status == 1
    counts = [line.split()[1] for line in printed.splitlines() if line.startswith(("unique", "duplicates"))]
    assert counts == ["1", "0", "0", "1"]


def test_the_held_out_rows_of_a_configuration_are_checked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, held_out = (write(tmp_path / f"{name}.jsonl", rows) for name, rows in (("a", [OWN]), ("b", [EMPTY])))
    config = tmp_path / "run.toml"
    config.write_text(f'[run]\nname = "r"\nmodel = "none"\n[filter]\ndata = "{data}"\neval_data = "{held_out}"\n')
    assert check.main([str(config)]) == 1
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "row 1: the answer is missing or empty: give `answer`, `gold` or `tests`"
    )


def test_a_prompt_that_is_too_long_for_the_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # D36: the template adds two tokens; 510 words make 512, 556 make 558
    model = save_words(tmp_path / "model")
    rows = [{"prompt": " ".join(["word"] * n), "answer": 1} for n in (510, 556)]
    status, printed = checked(write(tmp_path / "rows.jsonl", rows), capsys, "--model", str(model))
    assert status == 1
    assert "too long    1   left out; 0 shortened" in printed
    assert "row 2: it has 558 tokens after the chat template" in printed
    assert check.main([str(tmp_path / "rows.jsonl"), "--model", str(model), "--max-prompt-tokens", "558"]) == 0


def test_a_model_without_a_tokenizer_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [OWN])
    assert check.main([str(path), "--model", str(tmp_path)]) == 2
    assert "has no tokenizer.json here" in capsys.readouterr().err


def test_a_configuration_is_checked_with_all_that_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_words(tmp_path / "model")
    data = write(tmp_path / "rows.jsonl", [{"prompt": "one two three four", "answer": 1}])
    config = tmp_path / "run.toml"
    config.write_text(
        f'[run]\nname = "r"\nmodel = "{model}"\nmax_prompt_tokens = 6\n[filter]\ndata = "{data}"\nsuffix = " box it"\n'
    )
    assert check.main([str(config)]) == 1
    assert "row 1: it has 8 tokens" in capsys.readouterr().out
    assert check.main([str(config), "filter.suffix="]) == 0
    assert check.main([str(config), 'filter.on_long_prompt="truncate_left"']) == 0
    assert "0   left out; 1 shortened" in capsys.readouterr().out
