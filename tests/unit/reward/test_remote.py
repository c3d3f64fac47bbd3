import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.errors import UserError
from common.messages import Task, Verdict
from services.reward import scoring
from services.reward.config import RewardConfig
from services.reward.judges import Judges, open_remote
from services.reward.pool import ERRORS
from services.reward.remote.config import HttpConfig, JudgeConfig
from services.reward.remote.judge import filled, score_in
from services.reward.scoring import tried
from tests.fakes import HashJudge
from tests.unit.reward.servers import FakeServer, completion, fake_server

pytest.importorskip("httpx")

JUDGE, HTTP = Task(verifier="judge", gold="4"), Task(verifier="http", gold="4", metadata='{"level": 2}')


@pytest.fixture
def template(tmp_path: Path) -> str:
    path = tmp_path / "judge.txt"
    path.write_text("Q: {question}\nGold: {gold}\nAnswer: {output}\nEnd with a line `Score: X`, X from 0 to 10.")
    return str(path)


def reward(server: FakeServer, template: str, **changes: Any) -> RewardConfig:
    return RewardConfig(
        workers=1,
        judge=JudgeConfig(url=server.url, model="m", template=template, **changes),
        http=HttpConfig(url=server.url + "/score", **changes),
    )


async def asked(config: RewardConfig, task: Task, *, retries: int = 0) -> Verdict:
    async with open_remote(config) as remote:
        return await tried(Judges(HashJudge(), remote), "four", task, "2 + 2?", retries=retries)


async def test_the_judge_is_asked_by_the_template_and_its_score_is_read(template: str) -> None:
    async with fake_server(lambda *_: completion("<think>Score: 1</think>It is right.\n\n**Score: 7/10**")) as server:
        verdict = await asked(reward(server, template), JUDGE)
    assert (verdict.verdict, verdict.score) == ("correct", 0.7)
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies[0]["messages"][0]["content"].startswith("Q: 2 + 2?\nGold: 4\nAnswer: four\n")
    assert (server.bodies[0]["model"], server.bodies[0]["temperature"]) == ("m", 0.0)


async def test_a_server_of_the_users_is_sent_the_task(template: str) -> None:
    async with fake_server(lambda *_: (200, '{"score": 0.25}')) as server:
        verdict = await asked(reward(server, template), HTTP)
    assert (verdict.verdict, verdict.score) == ("wrong", 0.25)
    assert server.bodies == [
        {"output": "four", "gold": "4", "question": "2 + 2?", "data_source": "", "metadata": {"level": 2}}
    ]


@pytest.mark.parametrize(
    ("reply", "verdict", "score"),
    [
        ('{"score": 1}', "correct", 1.0), ('{"verdict": "correct"}', "correct", 1.0),
        ('{"verdict": "wrong"}', "wrong", 0.0), ('{"verdict": "wrong", "score": 0.5}', "wrong", 0.5),
        ('{"verdict": "error", "reason": "busy"}', "error", 0.0),
    ],
)  # fmt: skip
async def test_a_server_replies_with_a_score_or_a_verdict(
    template: str, reply: str, verdict: str, score: float
) -> None:
    async with fake_server(lambda *_: (200, reply)) as server:
        found = await asked(reward(server, template), HTTP)
    assert (found.verdict, found.score) == (verdict, score)


BAD = [
    (500, "oops"), (404, ""), (302, ""), (200, "{broken"), (200, "[" * 100_000), (200, "7"), (200, "x" * (2 << 20)),
    (200, '{"score": 2}'), (200, '{"score": -0.1}'), (200, '{"score": NaN}'), (200, '{"score": true}'),
    (200, '{"score": "0.5"}'), (200, '{"verdict": "maybe"}'), (200, '{"verdict": ["correct"]}'), (200, "{}"),
    completion("I like it."), completion("Score: 11"), completion("Score: -1"), completion("Score: 3\nScore: 7"),
    completion("Score: 7/100"), completion(None), completion([]), (200, '{"choices": []}'),
    completion("<think>Score: 7"), completion("The score: 7 is deserved, or not."),
]  # fmt: skip


@pytest.mark.parametrize("task", [JUDGE, HTTP], ids=["judge", "http"])
@pytest.mark.parametrize("reply", BAD, ids=range(len(BAD)))
async def test_whatever_is_no_score_is_an_error_and_never_a_reward(
    template: str, task: Task, reply: tuple[int, str]
) -> None:
    async with fake_server(lambda *_: reply) as server:
        verdict = await asked(reward(server, template), task)
    assert (verdict.verdict, verdict.score) == ("error", 0.0)


@pytest.mark.parametrize("task", [JUDGE, HTTP], ids=["judge", "http"])
async def test_silence_ends_at_the_time_limit_and_is_counted(template: str, task: Task) -> None:
    counter = ERRORS.labels(task.verifier, "timeout")._value
    before = counter.get()
    async with fake_server(lambda *_: None) as server:
        verdict = await asked(reward(server, template, timeout_s=0.2), task)
    assert (verdict.verdict, verdict.reason) == ("error", "timeout")
    assert 0.2 <= verdict.seconds < 2
    assert counter.get() - before == 1


async def test_nobody_there_is_an_error(template: str) -> None:
    async with fake_server(lambda *_: None) as server:
        config = reward(server, template)
    verdict = await asked(config, JUDGE)
    assert (verdict.verdict, verdict.reason) == ("error", "no connection (ConnectError)")


async def test_a_failure_is_tried_again_until_it_passes(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BACK_OFF_S", 0.001)
    replies = {1: (503, ""), 2: completion("hm"), 3: completion("Score: 10")}
    async with fake_server(lambda number, _: replies[number]) as server:
        assert (await asked(reward(server, template), JUDGE, retries=3)).score == 1.0
    assert len(server.bodies) == 3


async def test_no_more_requests_at_a_time_than_the_limit(template: str) -> None:
    async with fake_server(lambda *_: (200, '{"score": 1}')) as server:
        server.pause_s = 0.02
        async with open_remote(reward(server, template, max_concurrent=3)) as remote:
            judges = Judges(HashJudge(), remote)
            verdicts = await asyncio.gather(*(judges.judge(str(n), HTTP, "") for n in range(12)))
    assert [v.verdict for v in verdicts] == ["correct"] * 12
    assert server.most_at_once == 3


async def test_the_key_is_sent_and_stays_out_of_logs_and_configuration(
    template: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key_file = tmp_path / "key"
    key_file.write_text("sk-secret\n")
    key_file.chmod(0o600)
    async with fake_server(lambda *_: (500, "")) as server:
        config = reward(server, template, key_file=str(key_file))
        verdict = await asked(config, JUDGE)
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    for text in (caplog.text, verdict.reason, repr(config), str(msgspec.to_builtins(config))):
        assert "sk-secret" not in text


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (None, 0o600, "key_file .* cannot be read: No such file"),
        ("sk", 0o644, "can be read by everybody on this machine: chmod 600"),
        ("", 0o600, "must hold the key and nothing else"),
        ("two words", 0o600, "must hold the key and nothing else"),
        ("schlüssel", 0o600, "cannot be read: it is not ASCII"),
    ],
)
async def test_a_key_that_is_none_or_open_to_all_stops_the_start(
    template: str, tmp_path: Path, content: str | None, mode: int, sentence: str
) -> None:
    key_file = tmp_path / "key"
    if content is not None:
        key_file.write_text(content)
        key_file.chmod(mode)
    settings = HttpConfig(url="http://localhost:9", key_file=str(key_file))
    with pytest.raises(UserError, match=rf"\[reward.http\] {sentence}|\[reward.http\] key_file .*{sentence}"):
        await asked(RewardConfig(workers=1, http=settings), HTTP)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"url": "ftp://x"}, "must begin with http"), ({"url": "https://"}, "must begin with http"),
        ({"url": "https://me:secret@x/"}, "must not hold a password"),
        ({"url": "http://example.org/", "key_file": "k"}, "anybody on the way could read the key"),
        ({"url": "https://x", "timeout_s": 0}, "`timeout_s` must be above 0"),
        ({"url": "https://x", "max_concurrent": 0}, "`max_concurrent` must be at least 1"),
        ({"url": "https://x", "kee_file": "k"}, "unknown field `kee_file`"),
    ],
)  # fmt: skip
def test_an_unsafe_table_is_refused_with_a_sentence(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=sentence):
        msgspec.convert({"http": table}, RewardConfig)


def test_a_key_may_stay_on_this_machine_or_go_where_the_user_says() -> None:
    for url, allow in (("http://127.0.0.1/", False), ("http://localhost/", False), ("http://x/", True)):
        HttpConfig(url=url, key_file="k", allow_plain_key=allow)


async def test_a_template_without_the_output_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("Is {gold} good?")
    for name, sentence in ((str(path), "lacks {output}"), (str(tmp_path / "absent"), "cannot be read")):
        settings = JudgeConfig(url="http://localhost:9", model="m", template=name)
        with pytest.raises(UserError, match=sentence):
            await asked(RewardConfig(workers=1, judge=settings), JUDGE)


@pytest.mark.parametrize("name", ["judge", "http"])
async def test_a_verifier_without_its_table_stops_the_run_with_a_sentence(name: str) -> None:
    with pytest.raises(UserError, match=rf"verifier `{name}` is asked for, but there is no table \[reward.{name}\]"):
        await asked(RewardConfig(workers=1), Task(verifier=name))


def test_an_output_cannot_add_to_the_template() -> None:
    assert filled("{gold}|{output}|{x}", question="q", gold="g{output}", output="{gold}{question}") == (
        "g{output}|{gold}{question}|{x}"
    )


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score: 10", 1.0), ("**Final score:** 5", 0.5), ("score = 2.5", 0.25), ('{"score": 4}', 0.4),
        ("Score: 0/10", 0.0), ("Score: 7\nScore: 7", 0.7), ("Score: 7 points", None), ("My score: 7", None),
        ("Score: --7", None), ("", None),
    ],
)  # fmt: skip
def test_a_score_is_a_line_of_its_own(text: str, score: float | None) -> None:
    assert score_in(text, lowest=0, highest=10) == score


def test_a_scale_may_begin_below_zero() -> None:
    assert score_in("Score: -1", lowest=-1, highest=1) == 0.0
    assert score_in("Score: 0.5", lowest=-1, highest=1) == 0.75


def test_the_tables_are_read_from_the_configuration_and_back() -> None:
    config = msgspec.convert(
        {"judge": {"url": "https://x/v1", "model": "m", "template": "t"}, "functions": ["python:a:b"]}, RewardConfig
    )
    assert config.judge is not None
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(config))), RewardConfig) == config
