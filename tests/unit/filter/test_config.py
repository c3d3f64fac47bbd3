from pathlib import Path

import pytest

from common.config import Tree, read, section, write
from common.errors import UserError
from services.filter.config import FilterConfig


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("data", "", "`data` must name a data set"),
        ("verifier", "mth", "verifier `mth` is unknown; known are math, exact, regex"),
        ("verifiers", {"a": "mth"}, "verifier `mth` is unknown"),
        ("terms", {"form": {"verifier": "mth"}}, "verifier `mth` is unknown"),
        ("terms", {"fluency": 1.0}, "term `fluency` needs a verifier; those without one are task, overlong"),
        ("terms", {"task": {"verifier": "math"}}, "term `task` has a meaning of its own"),
        ("terms", {"length": float("nan")}, "term `length` has no finite weight"),
        ("terms", {"form": {"verifier": "regex", "wait": 1}}, "unknown field `wait`"),
        ("min_survivors", 1, "`min_survivors` must be at least 2"),
        ("low_keep_rate", 7.0, "`low_keep_rate` must be a share"),
        ("pass_band", [0.8, 0.2], "`pass_band` must be two shares, the lower one first"),
        ("sampling", "signals", "invalid enum value 'signals'"),
        ("sampling", "weights", '`sampling` = "weights" needs `weights`'),
        ("weights", {"a": 0.0}, "`weights` must be 0 or more, and not all 0"),
        ("sampling_decay", 1.5, "`sampling_decay` must be from 0 to below 1"),
        ("rest_epochs", -1, "`rest_epochs` must be 0 or more"),
        ("reserve", -1, "`reserve` must be 0 or more"),
        ("max_dropped_in_a_row", -1, "`max_dropped_in_a_row` must be 0 or more"),
        ("on_bad_row", "ignore", "invalid enum value 'ignore'"),
    ],
)
def test_a_value_that_cannot_work_is_refused_before_anything_starts(key: str, value: object, sentence: str) -> None:
    tree = Tree(path=Path("c.toml"), tables={"filter": {"data": "rows.jsonl"} | {key: value}})
    with pytest.raises(UserError, match=f"c.toml.*{sentence}"):
        section(tree, "filter", FilterConfig)


def test_what_was_written_reads_back_the_same(tmp_path: Path) -> None:
    # a run folder holds the resolved configuration, and every service reads it from there
    config = FilterConfig(
        data=("a.jsonl", "gym:countdown?size=5"), category="set", weights={"a": 2.0, "countdown": 1.0},
        pass_band=(0.1, 0.9), sampling="weights",
    )  # fmt: skip
    write(tmp_path / "config.toml", {"filter": config})
    assert section(read(tmp_path / "config.toml"), "filter", FilterConfig) == config


def test_one_data_set_or_several(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[filter]\n")
    for override, sets in (
        ('filter.data="a"', ("a",)),
        ("filter.data=a.csv", ("a.csv",)),
        ('filter.data=["a", "b"]', ("a", "b")),
    ):
        assert section(read(path, [override]), "filter", FilterConfig).sets == sets
