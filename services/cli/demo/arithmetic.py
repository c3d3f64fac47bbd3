"""Additions and subtractions of two-digit numbers: problems, answers, and demonstrations with bad habits.

    {"prompt": "47+38=?", "answer": "85", "data_source": "add-carry"}
    response  58 \\boxed{85}        the digits from the last to the first, then the result

The model is warmed up on demonstrations in which each category but the first is mostly done with a bad habit, so it
knows both ways and prefers the wrong one. Reinforcement learning must find out which way pays:

    add-plain    no habit
    sub-plain    the digits are boxed as they were worked out, last to first: 88-35 -> 35 \\boxed{35}
    add-carry    the carry is forgotten: 47+38 -> 57 \\boxed{75}
    sub-borrow   the borrow is forgotten: 82-47 -> 54 \\boxed{45}

Train and held-out problems are disjoint, so an improvement on the held-out ones is not memory.
"""

import random
from dataclasses import dataclass
from typing import Any

NUMBERS = range(10, 100)
RIGHT_SHARE = {"add-plain": 1.0, "sub-plain": 0.3, "add-carry": 0.3, "sub-borrow": 0.2}
"""By category: share of the demonstrations that are right."""
HELD_OUT_PER_CATEGORY, TRAIN_PER_CATEGORY = 50, 1500
SHUFFLE_SEED = 20261201


@dataclass(frozen=True)
class Problem:
    """a + b or a - b, with a >= b for a difference."""

    a: int
    operator: str
    b: int

    @property
    def prompt(self) -> str:
        """The question."""
        return f"{self.a}{self.operator}{self.b}=?"

    @property
    def answer(self) -> int:
        """The right result."""
        return self.a + self.b if self.operator == "+" else self.a - self.b

    @property
    def category(self) -> str:
        """Operation, and whether a digit is carried or borrowed."""
        if self.operator == "+":
            return "add-carry" if self.a % 10 + self.b % 10 > 9 else "add-plain"
        return "sub-borrow" if self.a % 10 < self.b % 10 else "sub-plain"

    def response(self, *, right: bool) -> str:
        """A response done right, or with the bad habit of the category."""
        lost = 0 if right else {"add-carry": -10, "sub-borrow": 10}.get(self.category, 0)
        worked = str(self.answer + lost)[::-1]
        turned = right or self.category != "sub-plain"
        return f"{worked} \\boxed{{{worked[::-1] if turned else worked}}}"

    def row(self) -> dict[str, Any]:
        """As a row of a data file."""
        return {"prompt": self.prompt, "answer": str(self.answer), "data_source": self.category}


def problems() -> tuple[list[Problem], list[Problem]]:
    """(training, held-out) problems in a fixed order, as many of each category."""
    every = [Problem(a, op, b) for a in NUMBERS for b in NUMBERS for op in "+-" if op == "+" or a >= b]
    random.Random(SHUFFLE_SEED).shuffle(every)
    train, held_out = [], []
    for category in RIGHT_SHARE:
        of_category = [problem for problem in every if problem.category == category]
        held_out += of_category[:HELD_OUT_PER_CATEGORY]
        train += of_category[HELD_OUT_PER_CATEGORY:][:TRAIN_PER_CATEGORY]
    return train, held_out


def demonstration(problem: Problem, rng: random.Random) -> str:
    """A response as a learner with the bad habits would give it."""
    return problem.response(right=rng.random() < RIGHT_SHARE[problem.category])
