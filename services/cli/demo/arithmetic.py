"""Additions and subtractions of numbers below 100: problems, answers, and demonstrations with bad habits.

    {"prompt": "47 + 38 = ?", "answer": "85", "data_source": "add-carry"}

The four categories differ in what the warmed-up model gets wrong: it was shown demonstrations in which the carry or the
borrow is often forgotten, or the result is off by ten. Reinforcement learning must find out which habit pays. Train and
held-out problems are disjoint pairs of numbers, so an improvement on the held-out ones is not memory.
"""

import random
from dataclasses import dataclass
from typing import Any

LIMIT = 100
HELD_OUT_PER_CATEGORY = 50
CORRECT_SHARE = {"add-plain": 0.85, "sub-plain": 0.45, "add-carry": 0.4, "sub-borrow": 0.35}
"""By category: share of the demonstrations that are right."""


@dataclass(frozen=True)
class Problem:
    """a + b or a - b, with a >= b for a difference."""

    a: int
    operator: str
    b: int

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

    @property
    def slip(self) -> int:
        """The result with this category's bad habit: carry or borrow forgotten, or off by ten."""
        if self.category == "add-carry":
            return self.answer - 10
        if self.category == "sub-borrow":
            return self.answer + 10
        return self.answer + 10 if self.operator == "+" else abs(self.answer - 10)

    @property
    def prompt(self) -> str:
        """The question."""
        return f"{self.a} {self.operator} {self.b} = ?"

    def row(self) -> dict[str, Any]:
        """As a row of a data file."""
        return {"prompt": self.prompt, "answer": str(self.answer), "data_source": self.category}


def problems() -> tuple[list[Problem], list[Problem]]:
    """(training, held-out) problems in a fixed order; as many held-out ones of each category."""
    rng = random.Random(20261201)
    every = [
        Problem(a, op, b) for a in range(10, LIMIT) for b in range(10, LIMIT) for op in "+-" if op == "+" or a >= b
    ]
    rng.shuffle(every)
    held_out: list[Problem] = []
    for category in CORRECT_SHARE:
        held_out += [problem for problem in every if problem.category == category][:HELD_OUT_PER_CATEGORY]
    apart = set(held_out)
    return [problem for problem in every if problem not in apart], held_out


def demonstration(problem: Problem, rng: random.Random) -> str:
    """A response in the asked format: the digits from the last to the first, then the boxed result."""
    result = problem.answer if rng.random() < CORRECT_SHARE[problem.category] else problem.slip
    return f"{str(result)[::-1]} \\boxed{{{result}}}"
