from pathlib import Path

from services.filter.sampling import files


def test_a_file_is_read_as_it_was_written_and_only_the_last_is_kept(tmp_path: Path) -> None:
    for name in ("prompts-1.bin", "prompts-2.bin"):
        files.write(tmp_path, name, name.encode())
    files.keep_only(tmp_path, "prompts-2.bin")
    assert files.read(tmp_path, "prompts-2.bin") == b"prompts-2.bin"
    assert [path.name for path in (tmp_path / files.FOLDER).iterdir()] == ["prompts-2.bin"]


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert files.read(tmp_path, "prompts-3.bin") == b""
    assert files.read(tmp_path, "") == b""
