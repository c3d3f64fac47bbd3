import json
from pathlib import Path
from typing import Any

import pytest

from common.config import Tree, read, section, write
from common.errors import UserError
from common.messages import Term, Verdict
from services.filter.config import FilterConfig
from services.filter.dataset import training_rows
from services.filter.dynamic_sampling import drop_reason
from services.filter.judging import Judging, TermConfig
from services.filter.schema import Refusal, Row, parse

PLAIN = {"prompt": "x", "answer": "1"}
FORM = TermConfig(verifier="regex", gold="^<think>", weight=0.25)


def usable(raw: dict[str, Any], **keys: Any) -> Row:
    row = parse(1, PLAIN | raw, judging=Judging(**keys))
    assert isinstance(row, Row), row
    return row


def reason(raw: dict[str, Any], **keys: Any) -> str:
    refusal = parse(1, PLAIN | raw, judging=Judging(**keys))
    assert isinstance(refusal, Refusal)
    return refusal.reason


@pytest.mark.parametrize(
    ("raw", "keys", "verifier"),
    [
        ({}, {}, "math"),
        ({}, {"verifier": "exact"}, "exact"),
        ({"data_source": "quiz"}, {"verifiers": {"quiz": "choice"}, "verifier": "exact"}, "choice"),
        ({"data_source": "other"}, {"verifiers": {"quiz": "choice"}, "verifier": "exact"}, "exact"),
        ({"data_source": "quiz", "verifier": "regex"}, {"verifiers": {"quiz": "choice"}}, "regex"),
        ({"extra": {"kind": "mc"}}, {"verifiers": {"mc": "choice"}, "by": "extra.kind"}, "choice"),
        ({"level": 3}, {"verifiers": {"3": "exact"}, "by": "level"}, "exact"),
        ({"reward_model": {"ground_truth": "1"}, "data_source": "acme"}, {"verifiers": {"acme": "exact"}}, "exact"),
    ],
)
def test_the_row_says_who_judges_it_or_else_the_configuration_by_any_field(
    raw: dict[str, Any], keys: dict[str, Any], verifier: str
) -> None:
    assert usable(raw, **keys).task.verifier == verifier


def test_a_row_cannot_name_code_that_the_configuration_does_not() -> None:
    raw = {"verifier": "python:os:system"}
    assert "it names Python code, `python:os:system`, which only a configuration may" in reason(raw)
    assert usable(raw, verifiers={"x": "python:os:system"}).task.verifier == "python:os:system"
    assert "names Python code" in reason({"terms": {"t": {"verifier": "python:os:system"}}})


def test_the_terms_of_the_configuration_are_changed_and_added_to_by_the_row() -> None:
    raw = {"terms": {"length": 0.5, "form": 0.75, "style": {"verifier": "judge", "metadata": {"passing": 0.9}}}}
    assert usable(raw, terms={"form": FORM, "repetition": 1}).task.terms == [
        Term(name="form", weight=0.75, verifier="regex", gold="^<think>"),
        Term(name="repetition", weight=1.0),
        Term(name="length", weight=0.5),
        Term(name="style", verifier="judge", metadata='{"passing": 0.9}'),
    ]
    assert usable({}).task.terms == []


def test_terms_and_metadata_may_be_json_text_as_in_csv_and_have_nulls_as_in_parquet() -> None:
    row = usable({"terms": '{"length": 0.5}', "metadata": '{"choices": ["a"]}'})
    assert (row.task.terms, row.task.metadata) == ([Term(name="length", weight=0.5)], '{"choices": ["a"]}')
    row = usable({"terms": {"length": 0.5, "style": None, "form": {"verifier": "regex", "gold": None}}})
    assert [term.name for term in row.task.terms] == ["length", "form"]
    for other in ("train", "", None, 7, [1]):
        assert usable({"metadata": other}).task.metadata == ""


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"fluency": 1}, "term `fluency` needs a verifier"),
        ({"accuracy": {"verifier": "math"}}, "a meaning of its own"),
        ({"form": {"verifier": "mth"}}, "verifier `mth` is unknown"), ("{broken", "`terms` is not JSON"),
        ([1], "`terms` is not an object"), ({"form": {"gold": "a"}}, "missing required field `verifier`"),
        ({"length": "much"}, "`terms` cannot be read"), ({"length": float("inf")}, "no finite weight"),
    ],
)  # fmt: skip
def test_terms_that_cannot_be_read_say_why(terms: Any, sentence: str) -> None:
    assert sentence in reason({"terms": terms})


@pytest.mark.parametrize(
    ("raw", "usable_without_answer"),
    [
        ({"verifier": "judge"}, True), ({"verifier": "http"}, True),
        ({"verifier": "json_schema", "metadata": {"schema": {}}}, True),
        ({"verifier": "bleu", "metadata": {"references": ["a"]}}, True),
        ({"verifier": "json_schema"}, False), ({"verifier": "math", "metadata": {"a": 1}}, False),
        ({"verifier": "choice", "metadata": {"choices": ["a"]}}, False),
    ],
)  # fmt: skip
def test_an_answer_may_be_missing_only_where_something_else_judges(
    raw: dict[str, Any], usable_without_answer: bool
) -> None:
    assert isinstance(parse(1, {"prompt": "x"} | raw), Row) == usable_without_answer


def test_an_answer_may_be_an_object_where_it_is_json() -> None:
    assert usable({"verifier": "json_schema", "answer": {"a": [1]}}).task.gold == '{"a": [1]}'


def data(tmp_path: Path, *rows: dict[str, Any]) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"x{n}", "answer": "1"} | row) + "\n" for n, row in enumerate(rows)))
    return str(path)


def test_a_metric_that_no_reward_gives_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    # D12: `acc` is what another framework calls it; nothing falls back to another name
    name = data(tmp_path, {}, {"terms": {"form": {"verifier": "regex", "gold": "a"}}})
    with pytest.raises(UserError, match=r"metric `acc` is given by no reward of row 1; it gives accuracy: choose"):
        training_rows(FilterConfig(data=name, metric="acc"))
    with pytest.raises(UserError, match="metric `form` is given by no reward of row 1"):
        training_rows(FilterConfig(data=name, metric="form"))
    with pytest.raises(UserError, match=r"metric `length` .*a term that no verifier gives says nothing"):
        training_rows(FilterConfig(data=name, metric="length", terms={"length": 1.0}))
    assert len(training_rows(FilterConfig(data=name, metric="form", terms={"form": FORM}))[0]) == 2


def test_a_group_is_judged_by_the_metric_of_the_users_choice() -> None:
    verdicts = [Verdict(verdict="correct", score=1.0, scores={"form": form}) for form in (0.0, 1.0)]
    assert drop_reason(verdicts, min_survivors=2) == "all_correct"
    assert drop_reason(verdicts, min_survivors=2, metric="form") is None
    with pytest.raises(UserError, match="metric `style` is not among the scores that the reward gives: accuracy, form"):
        drop_reason(verdicts, min_survivors=2, metric="style")


def test_the_tables_are_read_from_a_file_and_back(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        '[filter]\ndata = "rows.jsonl"\nmetric = "form"\nverifiers = {"openai/gsm8k" = "math", quiz = "choice"}\n'
        '[filter.terms]\nlength = 1\nform = {verifier = "regex", gold = "^<think>", weight = 0.25}\n'
    )
    config = section(read(path), "filter", FilterConfig)
    assert config.terms == {"length": 1.0, "form": FORM}
    write(path, {"filter": config})
    assert section(read(path), "filter", FilterConfig) == config
    with pytest.raises(UserError, match="verifier `mth` is unknown"):
        section(Tree(path=path, tables={"filter": {"data": "x", "verifier": "mth"}}), "filter", FilterConfig)
