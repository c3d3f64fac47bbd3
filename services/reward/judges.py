"""Who judges a task: a remote judge by its name, everything else the pool.

judge(output, task, question) --> judge, http: remote/, awaited in the event loop
                              --> all others: pool.py, in killable worker processes
"""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping

import msgspec

from common.errors import UserError
from common.messages import Task, Verdict
from services.reward.config import RewardConfig
from services.reward.pool import VERDICTS, count, open_pool
from services.reward.remote.config import RemoteConfig
from services.reward.remote.files import read_key, read_template
from services.reward.scoring import Judge
from services.reward.verifiers import BAD_GOLD, UNUSABLE, BadGoldError, error

REMOTE = ("judge", "http")


class Judges:
    """The pool and the remote judges as one."""

    def __init__(self, pool: Judge, remote: Mapping[str, Judge]) -> None:
        self._pool = pool
        self._remote = remote

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of whom the task names."""
        name = task.verifier
        if name not in REMOTE:
            return await self._pool.judge(output, task)
        if name not in self._remote:
            return error(f"{UNUSABLE}: verifier `{name}` is asked for, but there is no table [reward.{name}]")
        start = time.perf_counter()
        try:
            verdict = await self._remote[name].judge(output, task, question)
        except BadGoldError as why:
            verdict = error(f"{BAD_GOLD}: {why}")
        verdict = msgspec.structs.replace(verdict, seconds=time.perf_counter() - start)
        count(name, verdict)
        VERDICTS.labels(name, verdict.verdict).inc()
        return verdict


@contextlib.asynccontextmanager
async def open_judges(config: RewardConfig, *, queue_limit: int) -> AsyncIterator[Judges]:
    """All judges of a configuration, for the length of the block."""
    pool = open_pool(
        config.workers, timeout_s=config.timeout_s, memory_bytes=config.memory_mib << 20,
        recycle_after=config.recycle_after, recycle_bytes=config.recycle_mib << 20, functions=config.functions,
        cache_size=config.cache_size, queue_limit=queue_limit, limits=config.code.limits(),
    )  # fmt: skip
    async with open_remote(config) as remote, pool as opened:
        yield Judges(opened, remote)


@contextlib.asynccontextmanager
async def open_remote(config: RewardConfig) -> AsyncIterator[dict[str, Judge]]:
    """The remote judges that have a table. Their library is imported only then."""
    if config.judge is None and config.http is None:
        yield {}
        return
    try:
        from services.reward.remote.endpoint import Endpoint
        from services.reward.remote.http import HttpReward
        from services.reward.remote.judge import PATH, LlmJudge
    except ImportError as missing:
        raise UserError(
            "[reward.judge] and [reward.http] need the library `httpx`, which is not installed: "
            "pip install 'dapo[rewards]'"
        ) from missing

    async with contextlib.AsyncExitStack() as stack:

        def endpoint(table: str, settings: RemoteConfig, path: str) -> Endpoint:
            key = read_key(settings.key_file, table)
            opened = Endpoint(
                settings.url.rstrip("/") + path if path else settings.url, key=key, timeout_s=settings.timeout_s,
                max_concurrent=settings.max_concurrent,
            )  # fmt: skip
            stack.push_async_callback(opened.close)
            return opened

        judges: dict[str, Judge] = {}
        if config.judge is not None:
            template = read_template(config.judge.template)
            judges["judge"] = LlmJudge(endpoint("reward.judge", config.judge, PATH), config.judge, template)
        if config.http is not None:
            judges["http"] = HttpReward(endpoint("reward.http", config.http, ""))
        yield judges
