"""The library `reasoning-gym` is an extra: a stand-in takes its place; one test asks the real one if it is there."""

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from common.messages import Task, Verdict


class StandIn(ModuleType):
    """Scores sums of two numbers that must be a tuple; half marks for the wrong sign."""

    def __init__(self) -> None:
        super().__init__("reasoning_gym")

    def get_score_answer_fn(self, name: str) -> Any:
        if name != "sums":
            raise ValueError(name)
        return self._score

    @staticmethod
    def _score(*, answer: str, entry: dict[str, Any]) -> float:
        wanted = sum(entry["metadata"]["parts"]) if isinstance(entry["metadata"]["parts"], tuple) else None
        return 1.0 if int(answer) == wanted else 0.5 if wanted is not None and int(answer) == -wanted else 0.0


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setitem(sys.modules, "reasoning_gym", StandIn())
    monkeypatch.delitem(sys.modules, "services.reward.gym", raising=False)
    yield importlib.import_module("services.reward.gym")
    sys.modules.pop("services.reward.gym", None)


def judged(gym: Any, output: str, *, gold: str = "5", source: str = "reasoning_gym/sums", **metadata: Any) -> Verdict:
    text = json.dumps({"parts": (2, 3)} | metadata)
    return gym.verify_gym(output, Task(verifier="reasoning_gym", gold=gold, data_source=source, metadata=text))


@pytest.mark.parametrize("output", ["<answer> 5 </answer>", r"so \boxed{5}", "Answer: 5", "well\n5"])
def test_the_answer_is_scored_by_the_library_with_the_tuples_that_json_lost(gym: Any, output: str) -> None:
    assert judged(gym, output).score == 1.0


def test_part_of_the_marks_is_correct_only_if_the_row_says_so(gym: Any) -> None:
    half = judged(gym, "<answer>-5</answer>")
    assert (half.verdict, half.score) == ("wrong", 0.5)
    assert judged(gym, "<answer>-5</answer>", passing=0.5).verdict == "correct"


def test_what_the_scorer_cannot_read_is_wrong_unless_it_cannot_read_the_gold_answer_either(gym: Any) -> None:
    assert judged(gym, "<answer>five</answer>").verdict == "wrong"
    assert judged(gym, "<answer>five</answer>", gold="cinque").verdict == "error"
    assert judged(gym, "").verdict == "wrong"


def test_a_data_set_that_the_library_lacks_is_a_bad_row(gym: Any) -> None:
    with pytest.raises(gym.BadGoldError, match="`products` is no data set"):
        judged(gym, "5", source="reasoning_gym/products")


@pytest.mark.filterwarnings("ignore")  # the library leaves files open
def test_the_real_library_gives_full_marks_to_its_own_answers() -> None:
    library = pytest.importorskip("reasoning_gym")
    gym = importlib.import_module("services.reward.gym")
    for name in ("leg_counting", "basic_arithmetic", "countdown", "arc_agi"):
        for entry in library.create_dataset(name, size=3, seed=1):
            task = Task(
                verifier="reasoning_gym", gold=str(entry["answer"]), data_source=f"reasoning_gym/{name}",
                metadata=json.dumps(entry["metadata"], default=str),
            )  # fmt: skip
            assert gym.verify_gym(f"<answer>{entry['answer']}</answer>", task).verdict == "correct", name
            assert gym.verify_gym("<answer>no</answer>", task).verdict == "wrong", name
