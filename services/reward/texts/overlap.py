"""The verifiers `bleu` and `chrf`: how much of the reference text the answer has, by the library sacrebleu.

    {"answer": "The cat sat on the mat.", "metadata": {"references": ["A cat was sitting on the mat."]}}

Sentence BLEU with effective order (n-grams that the sentence is too short for do not count) and sentence chrF2, both
with sacrebleu's defaults, over 100. `references` are further right texts. Correct from 0.5 on unless the metadata has
`passing`; the score is what is trained on. Sources: Papineni et al. 2002; Popovic 2015; Post 2018 (arXiv 1804.08771).
"""

from sacrebleu.metrics import BLEU, CHRF

from common.messages import Task, Verdict
from services.reward.texts.references import references
from services.reward.texts.response import passing, response
from services.reward.verifiers import graded, wrong

PASSING = 0.5


def verify_bleu(output: str, task: Task) -> Verdict:
    """Sentence BLEU of the answer."""
    return _judged(BLEU(effective_order=True), output, task)


def verify_chrf(output: str, task: Task) -> Verdict:
    """Sentence chrF of the answer."""
    return _judged(CHRF(), output, task)


def _judged(metric: BLEU | CHRF, output: str, task: Task) -> Verdict:
    texts, enough = references(task), passing(task, PASSING)
    text = response(output)
    if not text:
        return wrong("no answer")
    score = metric.sentence_score(text, texts).score / 100
    return graded(min(1.0, max(0.0, score)), passing=enough)
