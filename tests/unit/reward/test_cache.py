import msgspec

from common.messages import Task, Verdict
from services.reward.cache import HITS, VerdictCache
from services.reward.pool import open_pool

CORRECT, WRONG = Verdict(verdict="correct", score=1.0, seconds=3.0), Verdict(verdict="wrong")
TASK = Task(verifier="math", gold="7")


def hits(verifier: str) -> float:
    return float(HITS.labels(verifier)._value.get())


def test_a_verdict_is_known_by_all_that_it_depends_on() -> None:
    cache = VerdictCache(10)
    others = [
        TASK, Task(verifier="exact", gold="7"), Task(verifier="math", gold="8"),
        Task(verifier="math", gold="7", metadata="{}"), Task(verifier="math", gold="7", tests="[]"),
        Task(verifier="math", gold="7", data_source="x"),
    ]  # fmt: skip
    assert len({cache.key(output, task) for output in ("a", "b") for task in others}) == 12


def test_the_least_recently_used_goes_first_and_the_size_holds() -> None:
    cache = VerdictCache(2)
    a, b, c = (cache.key(text, TASK) for text in "abc")
    cache.keep(a, CORRECT)
    cache.keep(b, WRONG)
    assert cache.find(a) == msgspec.structs.replace(CORRECT, seconds=0.0)
    cache.keep(c, WRONG)
    assert (len(cache), cache.find(b)) == (2, None)
    assert cache.find(a) is not None


def test_what_says_nothing_of_the_text_is_not_kept() -> None:
    cache = VerdictCache(10)
    key = cache.key("a", TASK)
    for reason, verdict in (("worker died", "error"), ("timeout", "wrong"), ("memory", "wrong")):
        cache.keep(key, Verdict(verdict=verdict, reason=reason))  # type: ignore[arg-type]
        assert cache.find(key) is None
    for verifier in ("judge", "http", "python:a:b", "code"):
        assert cache.key("a", Task(verifier=verifier)) is None


async def test_the_same_text_is_judged_once() -> None:
    before = hits("math")
    settings = {"timeout_s": 2.0, "memory_bytes": 2 << 30, "recycle_after": 100, "queue_limit": 8}
    async with open_pool(1, cache_size=10, **settings) as pool:  # type: ignore[arg-type]
        verdicts = [await pool.judge(r"\boxed{7}", TASK) for _ in range(3)]
        other = await pool.judge(r"\boxed{7}", Task(verifier="math", gold="8"))
    assert [v.verdict for v in verdicts] == ["correct"] * 3
    assert other.verdict == "wrong"
    assert hits("math") - before == 2
