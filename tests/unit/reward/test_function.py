import pytest

from common.errors import UserError
from common.messages import Task
from services.reward.function import found, user_function
from services.reward.pool import open_pool
from services.reward.verifiers import UnusableError

HERE = "tests.unit.reward.functions"
SETTINGS = {"timeout_s": 1.0, "memory_bytes": 2 << 30, "recycle_after": 1000, "queue_limit": 64}


def task(name: str, gold: str = "") -> Task:
    return Task(verifier=f"python:{HERE}:{name}", gold=gold)


@pytest.mark.parametrize(
    ("returned", "verdict", "score"),
    [
        ("true", "correct", 1.0), ("false", "wrong", 0.0), ("half", "correct", 0.5), ("verdict", "correct", 0.75),
        ("none", "error", 0.0), ("text", "error", 0.0), ("two", "error", 0.0), ("nan", "error", 0.0),
        ("bad", "error", 0.0), ("an exception", "error", 0.0),
    ],
)  # fmt: skip
def test_what_a_function_returns_is_a_verdict_of_three_values(returned: str, verdict: str, score: float) -> None:
    found = user_function(f"{HERE}:of_text")(returned, task("of_text"))
    assert (found.verdict, found.score) == (verdict, score)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("os.getcwd", "is no import path: write python:package.module:function"),
        ("absent_module:f", "cannot be imported .ModuleNotFoundError"),
        (f"{HERE}:absent", "cannot be imported .AttributeError"),
        (f"{HERE}:not_a_function", "is not a function"),
    ],
)
def test_a_path_without_a_function_is_one_sentence(path: str, sentence: str) -> None:
    with pytest.raises(UnusableError, match=sentence):
        found(path)


async def test_a_function_runs_in_the_killable_workers() -> None:
    async with open_pool(1, functions=[f"python:{HERE}:hangs"], **SETTINGS) as pool:  # type: ignore[arg-type]
        assert (await pool.judge("fine", task("hangs"))).verdict == "correct"
        stopped = await pool.judge("hang", task("hangs"))
        assert (stopped.verdict, stopped.reason) == ("wrong", "timeout")
        assert (await pool.judge("fine", task("hangs"))).verdict == "correct"


async def test_a_task_cannot_name_a_function_that_the_configuration_does_not() -> None:
    async with open_pool(1, functions=[f"python:{HERE}:polite"], **SETTINGS) as pool:  # type: ignore[arg-type]
        assert (await pool.judge("please", task("polite", "please thanks"))).score == 0.5
        refused = await pool.judge("x", Task(verifier="python:os:system"))
    assert refused.verdict == "error"
    assert refused.reason == "unusable: `python:os:system` is asked for, but [reward] functions does not list it"


async def test_a_function_that_cannot_be_imported_stops_the_start() -> None:
    with pytest.raises(UserError, match=r"\[reward\] functions: `python:absent:f` cannot be imported"):
        async with open_pool(1, functions=["python:absent:f"], **SETTINGS):  # type: ignore[arg-type]
            pass


async def test_a_worker_that_grows_is_replaced() -> None:
    async with open_pool(
        1, functions=[f"python:{HERE}:grows"], recycle_bytes=64 << 20, **SETTINGS  # type: ignore[arg-type]
    ) as pool:  # fmt: skip
        await pool.judge("", task("grows"))
        first = pool.pids
        for _ in range(16):  # 17 times 8 MiB; looked at after 16 requests
            assert (await pool.judge("", task("grows"))).verdict == "correct"
        assert pool.pids != first
