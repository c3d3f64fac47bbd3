"""avg@k and pass@k of a row answered n times, c of them right.

    pass@k = 1 - C(n - c, k) / C(n, k)          the unbiased estimate of "one of k answers is right"

Source: Evaluating Large Language Models Trained on Code (arXiv 2107.03374), eq. 1. Answers that could not be judged are
left out, so n may differ from row to row; a row says nothing of a k above its n. The same k are reported for every row,
so that no figure rests on just the rows in which a verifier failed.
"""

from collections.abc import Iterator
from math import comb


def pass_at(k: int, *, answers: int, right: int) -> float:
    """The estimate for one row; `answers` must be at least k."""
    return 1.0 - comb(answers - right, k) / comb(answers, k)


def ks(answers: int) -> Iterator[int]:
    """The k that are reported: powers of two, and the number of answers asked for."""
    k = 1
    while k < answers:
        yield k
        k *= 2
    if answers:
        yield answers
