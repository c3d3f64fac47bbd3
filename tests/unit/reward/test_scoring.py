import pytest

from common.errors import UserError
from common.messages import Task, Term, Verdict
from services.reward import scoring
from services.reward.scoring import judged

CORRECT, WRONG = Verdict(verdict="correct", score=1.0), Verdict(verdict="wrong")
TASK = Task(
    verifier="math", gold="7", metadata="{}",
    terms=[
        Term(name="format", weight=0.5, verifier="regex", gold="^a"),
        Term(name="same", weight=0.0, verifier="exact"),
        Term(name="length", weight=0.1),
    ],
)  # fmt: skip


class Script:
    """Gives the verdicts of a list per verifier, the last one for ever; remembers the tasks."""

    def __init__(self, **verdicts: list[Verdict]) -> None:
        self._verdicts = verdicts
        self.asked: list[Task] = []

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The next verdict of the task's verifier."""
        self.asked.append(task)
        verdicts = self._verdicts[task.verifier]
        return verdicts.pop(0) if len(verdicts) > 1 else verdicts[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BACK_OFF_S", 0.0)


async def test_the_scores_of_further_verifiers_stand_beside_the_verdict() -> None:
    script = Script(math=[WRONG], regex=[CORRECT], exact=[Verdict(verdict="wrong", score=0.25)])
    verdict = await judged(script, "a", TASK, "", retries=0)
    assert (verdict.verdict, verdict.scores) == ("wrong", {"format": 1.0, "same": 0.25})
    # what a term leaves empty is the task's
    assert [(task.verifier, task.gold, task.terms) for task in script.asked[1:]] == [
        ("regex", "^a", []),
        ("exact", "7", []),
    ]


async def test_a_term_that_cannot_be_judged_makes_the_verdict_an_error() -> None:
    script = Script(math=[CORRECT], regex=[Verdict(verdict="error", reason="bad_gold: no pattern")], exact=[WRONG])
    verdict = await judged(script, "a", TASK, "", retries=0)
    assert (verdict.verdict, verdict.score, verdict.reason) == ("error", 0.0, "format: bad_gold: no pattern")


@pytest.mark.parametrize(("reason", "tries"), [("worker died", 4), ("timeout", 4), ("bad_gold: x", 1), ("bad_gold", 1)])
async def test_only_what_may_pass_is_tried_again(reason: str, tries: int) -> None:
    script = Script(math=[Verdict(verdict="error", reason=reason)])
    verdict = await judged(script, "", Task(verifier="math"), "", retries=3)
    assert (verdict.reason, len(script.asked)) == (reason, tries)


async def test_an_error_that_passes_is_no_error() -> None:
    script = Script(math=[Verdict(verdict="error", reason="worker died"), CORRECT])
    assert (await judged(script, "", Task(verifier="math"), "", retries=3)).verdict == "correct"


async def test_what_the_user_must_mend_stops_the_run_with_a_sentence() -> None:
    script = Script(bleu=[Verdict(verdict="error", reason="unusable: install it")])
    with pytest.raises(UserError, match=r"^install it$"):
        await judged(script, "", Task(verifier="bleu"), "", retries=3)
