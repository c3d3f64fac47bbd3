import json

import pytest

from common.messages import Task, Verdict
from services.reward.texts.rouge import rouge_l, verify_rouge, words
from services.reward.verifiers import BadGoldError, load

REFERENCE = "The cat sat on the mat."


def judged(name: str, output: str, gold: str = REFERENCE, **metadata: object) -> Verdict:
    if name != "rouge":
        pytest.importorskip("sacrebleu")
    verifier = load(name)
    assert verifier is not None
    return verifier(output, Task(verifier=name, gold=gold, metadata=json.dumps(metadata)))


@pytest.mark.parametrize("name", ["bleu", "chrf", "rouge"])
def test_the_reference_scores_one_and_nothing_scores_zero(name: str) -> None:
    same = judged(name, f"<think>a dog?</think>{REFERENCE}")
    assert (same.verdict, same.score) == ("correct", pytest.approx(1.0))
    for output in ("", "<think>The cat sat on the mat.", "zzz"):
        assert judged(name, output).verdict == "wrong"
        assert judged(name, output).score == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["bleu", "chrf", "rouge"])
def test_the_best_of_several_references_counts(name: str) -> None:
    assert judged(name, "A dog.", references=["A dog."]).score > 0.99
    assert judged(name, "A dog.", gold="", references=["A dog."]).score > 0.99


@pytest.mark.parametrize("name", ["bleu", "chrf", "rouge"])
def test_a_row_without_a_reference_is_an_error(name: str) -> None:
    for gold, references in (("", []), (" ", [""]), ("x", [1]), ("x", "y")):
        with pytest.raises(BadGoldError):
            judged(name, "x", gold=gold, references=references)


def test_the_passing_score_is_the_rows() -> None:
    output = "The cat is there."
    score = judged("chrf", output).score
    assert judged("chrf", output, passing=score).verdict == "correct"
    assert judged("chrf", output, passing=min(1.0, score + 0.01)).verdict == "wrong"


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence() -> None:
    # police killed the gunman / police kill the gunman: L = 3 of 4 and 4 words, F1 = 2 * 3 / 8
    assert rouge_l(words("police kill the gunman"), words("police killed the gunman")) == 0.75
    # the gunman kill police: L = 2
    assert rouge_l(words("the gunman kill police"), words("police killed the gunman")) == 0.5
    assert rouge_l([], words("a")) == rouge_l(words("a"), []) == 0.0


@pytest.mark.parametrize(("text", "number"), [("Don't stop, 42!", 4), ("猫 坐在 mat", 4), ("", 0), ("Écoute", 1)])
def test_words_are_runs_of_letters_or_signs_of_chinese(text: str, number: int) -> None:
    assert len(words(text)) == number


def test_a_long_answer_is_judged_in_time() -> None:
    verdict = verify_rouge("word other " * 20_000, Task(verifier="rouge", gold="word " * 5_000))
    assert verdict.score == pytest.approx(2 * 5_000 / 45_000)
