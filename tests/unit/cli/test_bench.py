"""The verb that runs a benchmark."""

from pathlib import Path

import pytest

from services.cli import bench


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "two_words.py").write_text(
        '"""Says what it is given."""\nimport sys\nif __name__ == "__main__":\n'
        "    print(*sys.argv[1:], file=open(sys.argv[1], 'w'))\n    sys.exit(7)\n"
    )
    (folder / "helper.py").write_text('"""Not a benchmark."""\n')
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    return tmp_path


def test_a_benchmark_gets_its_own_arguments_and_its_exit_status_is_passed_on(root: Path) -> None:
    said = root / "said"
    assert bench.main(["two-words", str(said), "--json", "--rounds", "3"]) == 7
    assert said.read_text() == f"{said} --json --rounds 3\n"


@pytest.mark.parametrize("words", [["nonsense"], ["helper"], []])
def test_an_unknown_name_is_one_sentence_that_lists_the_names(
    root: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.rstrip().endswith("two-words")


def test_help_names_every_benchmark_with_the_first_line_of_its_docstring(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(["--help"]) == 0
    assert "two-words          Says what it is given." in capsys.readouterr().out


def test_an_installed_package_says_that_it_has_no_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert bench.main(["learner"]) == 2
    assert "checkout of the repository" in capsys.readouterr().err


def test_every_benchmark_of_the_repository_is_found() -> None:
    names = set(bench.benchmarks(Path("benchmarks")))
    assert {"learner", "sampler", "verifier", "dynamic-sampling"} <= names
