from dataclasses import dataclass
from pathlib import Path

import pytest

from common.config import RunConfig, read, section, write
from common.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of a test."""

    lr: float = 1.0
    steps: int = 3

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.steps < 1:
            raise ValueError("`steps` must be at least 1")


def file(folder: Path, text: str) -> Path:
    path = folder / "c.toml"
    path.write_text(text)
    return path


def test_a_file_gives_its_values_and_overrides_win(tmp_path: Path) -> None:
    tree = read(file(tmp_path, "[learner]\nlr = 2e-6\n"), ["learner.steps=7", "name=mine", "model=a/b"])
    assert section(tree, "learner", Section) == Section(lr=2e-6, steps=7)
    assert section(tree, "run", RunConfig).name == "mine"


@pytest.mark.parametrize(
    ("text", "overrides", "sentence"),
    [
        ("[learner]\nstep = 1\n", [], r"unknown key `step` in \[learner\]; did you mean `steps`\?"),
        ("[lerner]\n", [], r"unknown section \[lerner\]; did you mean `learner`\?"),
        ("lr = 1\n", [], "unknown section"),
        ("[learner\n", [], "cannot be read"),
        ("[learner]\nlr = 'x'\n", [], r"\[learner\] key `lr`: expected `float`, got `str`"),
        ("[learner]\nsteps = 0\n", [], r"`steps` must be at least 1"),
        ("", ["learner.lr"], "not of the form section.key=value"),
        ("", ["lerner.lr=1"], "did you mean `learner`"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_section_and_key(
    tmp_path: Path, text: str, overrides: list[str], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        section(read(file(tmp_path, text), overrides), "learner", Section)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist: give the path of a TOML file"):
        read(tmp_path / "absent.toml")


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    run = RunConfig(name="x", model="m", temperature=0.5)
    write(tmp_path / "c.toml", {"run": run, "learner": Section(steps=9)})
    tree = read(tmp_path / "c.toml")
    assert section(tree, "run", RunConfig) == run
    assert section(tree, "learner", Section) == Section(steps=9)


def test_the_defaults_are_written_too(tmp_path: Path) -> None:
    tree = read(file(tmp_path, "[run]\nname = 'x'\nmodel = 'm'"))
    write(tmp_path / "c.toml", {"run": section(tree, "run", RunConfig)})
    assert read(tmp_path / "c.toml").tables["run"]["group_size"] == 8
