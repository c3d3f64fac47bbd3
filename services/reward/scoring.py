"""One output to its verdict: all verifiers of its task, tried again where they failed.

    task.verifier, and the verifier of every term that has one  ->  one verdict with the scores of all

A term that cannot be judged makes the verdict an error: a reward with a part missing would be another reward.
"""

import asyncio
import random
from typing import Protocol

import msgspec
from prometheus_client import Counter

from common.errors import UserError
from common.messages import Task, Term, Verdict
from services.reward.verifiers import BAD_GOLD, UNUSABLE, error

RETRIES = Counter("dapo_reward_retries_total", "Verifications tried again after an error.")
BACK_OFF_S = 0.5
FINAL_ERRORS = (BAD_GOLD, "unknown verifier")
"""Reasons of errors that trying again cannot mend."""


class Judge(Protocol):
    """What gives a verdict: judges.py, or a stand-in."""

    async def judge(self, output: str, task: Task, question: str = "") -> Verdict:
        """The verdict of one output."""


async def judged(judge: Judge, output: str, task: Task, question: str, *, retries: int) -> Verdict:
    """The verdict of a task's verifier, with the scores of its further ones."""
    further = [term for term in task.terms if term.verifier]
    tasks = [task, *(task_of(term, task) for term in further)]
    first, *others = await asyncio.gather(*(tried(judge, output, one, question, retries=retries) for one in tasks))
    for term, verdict in zip(further, others, strict=True):
        if verdict.verdict == "error":
            return msgspec.structs.replace(error(f"{term.name}: {verdict.reason}"[:1000]), seconds=first.seconds)
    scores = {term.name: verdict.score for term, verdict in zip(further, others, strict=True)}
    return msgspec.structs.replace(first, scores=scores) if scores else first


async def tried(judge: Judge, output: str, task: Task, question: str, *, retries: int) -> Verdict:
    """The verdict of one verifier; an error of the infrastructure is tried again, with growing pauses.

    Raises `UserError` for one that the user must mend.
    """
    verdict = await judge.judge(output, task, question)
    for attempt in range(retries):
        if verdict.verdict != "error" or verdict.reason.startswith((*FINAL_ERRORS, UNUSABLE)):
            break
        RETRIES.inc()
        await asyncio.sleep(BACK_OFF_S * 2**attempt * random.uniform(0.75, 1.25))
        verdict = await judge.judge(output, task, question)
    if verdict.verdict == "error" and verdict.reason.startswith(UNUSABLE):
        raise UserError(verdict.reason.removeprefix(f"{UNUSABLE}: "))
    return verdict


def task_of(term: Term, task: Task) -> Task:
    """What the verifier of a term is asked; what the term leaves empty is the task's."""
    return msgspec.structs.replace(
        task, verifier=term.verifier, gold=term.gold or task.gold, metadata=term.metadata or task.metadata, terms=[]
    )
