"""The verifier `rouge`: ROUGE-L, the longest common subsequence of words of the answer and the reference.

    P = L / words of the answer      R = L / words of the reference      score = 2 P R / (P + R)

Words are runs of letters and digits, in lower case; a sign of Chinese or Japanese is a word of its own. Without
stemming. Further references are in the metadata (`references`), the best counts. Correct from 0.5 on unless the
metadata has `passing`. L is counted with one machine word per 64 words of the reference (Hyyro 2004, "Bit-parallel
LCS-length computation revisited"), so that a long answer costs no more than reading it twice.

Own lines, because the library rouge-score has not been released since 2022, drops all that is not ASCII and brings
NLTK. Source: Lin 2004, "ROUGE: a package for automatic evaluation of summaries", section 3.
"""

import re
from collections.abc import Sequence

from common.messages import Task, Verdict
from services.reward.texts.references import references
from services.reward.texts.response import passing, response
from services.reward.verifiers import graded, wrong

PASSING = 0.5
_WORD = re.compile(r"[぀-ヿ㐀-鿿]|(?:(?![぀-ヿ㐀-鿿])[^\W_])+")


def verify_rouge(output: str, task: Task) -> Verdict:
    """ROUGE-L F1 of the answer, against the best reference."""
    texts, enough = references(task), passing(task, PASSING)
    text = response(output)
    if not text:
        return wrong("no answer")
    return graded(max(rouge_l(words(text), words(reference)) for reference in texts), passing=enough)


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F1 of the longest common subsequence."""
    common = longest_common_subsequence(answer, reference)
    return 2 * common / (len(answer) + len(reference)) if common else 0.0


def words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text.lower())


def longest_common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Its length: the zeros of a row of |b| bits after one step for each word of a."""
    places: dict[str, int] = {}
    for place, word in enumerate(b):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(b)) - 1
    row = full
    for word in a:
        hit = row & places.get(word, 0)
        row = (row + hit | row - hit) & full
    return len(b) - row.bit_count()
