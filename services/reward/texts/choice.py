"""The verifier `choice`: the letter of a multiple choice.

    {"answer": "B", "metadata": {"choices": ["Rome", "Paris", "Oslo"]}}        `choices` may be left out

1. Of the answer (texts/response.py: after the thinking, in the last <answer> tag if there is one) the last of these
   counts, whichever it is: a \\boxed{}, the rest of a line after "answer:" or "answer is". Else its last line.
2. It is read as a letter if it is one, alone ("B", "(b)", "**B**", "\\text{B}", "option B") or before its text
   ("B. Paris", "(B) Paris", "B: Paris"). A word that begins with a letter is none ("A cat").
3. If the row has `choices`, the text of a choice counts as its letter, and a letter with another choice's text is
   wrong.
4. Several letters are wrong, unless the gold answer has several ("A, C"): then all must be there, in any order, and
   "A or C" is none.

The gold answer is a letter, several, or the text of a choice.
"""

import re
import string
from collections.abc import Mapping

from common.messages import Task, Verdict
from services.reward.maths.boxes import last_boxes
from services.reward.texts.response import response, settings, undecorated
from services.reward.verifiers import BadGoldError, correct, wrong

LETTERS = string.ascii_uppercase
_MARK = re.compile(r"\banswer\b[^\n:]{0,40}?(?:\bis\b|:)[\s*_]*([^\n]+)", re.I)
_WORD = re.compile(r"^(?:the\s+)?(?:option|choice|answer|letter)s?\s*:?\s+(?=\W?[A-Z]\b)", re.I)
_LABELLED = re.compile(
    r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])(?:[).:,]|\s+-|\s+(?=because\b|since\b|as\b)))(?:\s*(\S.*))?", re.S
)
_SEVERAL = re.compile(r"\(?[A-Z]\)?(?:\s*(?:,|;|&|\band\b|\s)\s*(?:and\s+)?\(?[A-Z]\)?)+[.\s]*", re.I)
_ANOTHER = re.compile(r"(?:^|[,;/&]|\band\b|\bor\b)\s*\(?[A-Z](?:[):]|\.?\s*$)")


def verify_choice(output: str, task: Task) -> Verdict:
    """Whether the letters of the answer are those of the gold answer."""
    choices = choices_of(task)
    wanted = letters(task.gold, choices)
    if not wanted:
        raise BadGoldError("the answer is no letter and no choice of the row")
    text = answer_of(output)
    if text is None:
        return wrong("no answer")
    found = letters(text, choices)
    return correct(f"letter {found}") if found == wanted else wrong(f"letter {found}" if found else "no letter")


def letters(text: str, choices: Mapping[str, str]) -> str:
    """The letters that an answer names, in order and joined; empty if it names none or contradicts itself."""
    text = _WORD.sub("", undecorated(text)).strip()
    named = [letter for letter, choice in choices.items() if _key(choice) == _key(text)]
    if named:
        return named[0] if len(named) == 1 else ""
    if len(text.strip(" ()[].:")) == 1:
        return _known(text.strip(" ()[].:").upper(), choices)
    if _SEVERAL.fullmatch(text):
        found = sorted(set(re.findall(r"\b[A-Z]\b", text.upper())))
        return "".join(found) if all(_known(letter, choices) for letter in found) else ""
    return _labelled(text, choices)


def _labelled(text: str, choices: Mapping[str, str]) -> str:
    match = _LABELLED.fullmatch(text)
    if match is None:
        return ""
    letter, rest = (match[1] or match[2] or match[3]).upper(), match[4] or ""
    same = [other for other, choice in choices.items() if _key(choice) == _key(rest)]
    if same:
        return letter if letter in same else ""
    return "" if _ANOTHER.search(rest) else _known(letter, choices)


def _known(letter: str, choices: Mapping[str, str]) -> str:
    return letter if letter in (choices or LETTERS) else ""


def choices_of(task: Task) -> dict[str, str]:
    """Letter -> text of the choices of a row; empty if it has none."""
    found = settings(task).get("choices", [])
    if isinstance(found, dict):
        found = {str(key).upper(): str(value) for key, value in found.items()}
    elif isinstance(found, list) and len(found) <= len(LETTERS):
        found = dict(zip(LETTERS, map(str, found), strict=False))
    else:
        raise BadGoldError("`choices` of the metadata is neither a list of up to 26 texts nor an object")
    return found


def answer_of(output: str) -> str | None:
    """The words that name the letter; None if there are none."""
    text = response(output)
    if not text:
        return None
    boxes, marks = last_boxes(text), list(_MARK.finditer(text))
    if boxes is not None and (not marks or boxes.start >= marks[-1].start()):
        return ", ".join(boxes.contents) if boxes.contents else None
    return marks[-1][1] if marks else text.rpartition("\n")[2]


def _key(text: str) -> str:
    return " ".join(undecorated(text).casefold().split()).rstrip(".")
