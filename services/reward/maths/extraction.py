r"""Which words of a model's text are its final answer.

1. Thinking does not count: only what follows the last </think>; after a <think> that never closes there is no answer.
2. Inside the last <answer>...</answer>, if the text has one. A tag that never closes is no answer.
3. The last of these marks, whatever its kind:
       \boxed{X} (also \fbox; neighbouring boxes are one answer)
       a line "Answer: X", "Final answer: X", "答案: X" (Markdown around it is ignored, X may stand on the next line);
       "Final answer: X" also within a line
       a line "#### X" (GSM8K; a numbered Markdown heading is not one)
4. Else the last phrase "the answer is X" / "答案是 X".
5. Else, from the last two lines that are not empty: a short **X** in bold that looks like mathematics.
6. Else the formula displayed at the very end, or the last line: all of it if it is short and looks like mathematics,
   or what follows its last "is" or "=".

What follows an end-of-turn token is not read, nor anything before the last 200,000 characters. There is no "last number
of the text" rule: it pays for luck.
"""

import re
from dataclasses import dataclass
from typing import Literal

from services.reward.maths.boxes import last_boxes
from services.reward.maths.signs import fold_width

WINDOW = 200_000

Place = Literal["box", "tag", "line", "hashes", "phrase", "bold", "last line"]


@dataclass(frozen=True, slots=True)
class Found:
    """A final answer and the kind of mark it stood in."""

    text: str
    place: Place


_THINK_END = re.compile(r"</(?:seed:)?(?:think|thinking|thought)>|\[/THINK\]", re.I)
_THINK_START = re.compile(r"<(?:seed:)?(?:think|thinking|thought)>|\[THINK\]", re.I)
_TURN = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end|end_of_text)\|>|</s>|<eos>|<end_of_turn>")
_LINE = re.compile(
    r"^[^\S\n]{0,40}[^\w\n(\\$]{0,12}(?:the[ ]|my[ ])?(?:(?:final|correct|short)[ ])?answer"
    r"(?:[ ]is)?[*_ ]{0,6}:[^\S\n]*([^\n]*)$"
    r"|^[^\S\n]{0,40}[^\w\n(\\$]{0,12}(?:最终|正确|因此|所以|故)?,?答案(?:是|为)?[*_ ]{0,6}:[^\S\n]*([^\n]*)$"
    r"|^[#*_ ]{1,12}(?:the[ ])?final[ ]answer[*_ .]{0,8}$"
    r"|(?<=[\s.])(?:\*\*)?final answer(?:\*\*)?:([^\n]*)$",
    re.I | re.M,
)
_INNER_LINE = re.compile(r"final answer(?:\*\*)?:", re.I)
_DISPLAY = re.compile(r"\s*(?:\\\[|\$\$)(.{1,500}?)(?:\\\]|\$\$)", re.S)
_LAST_DISPLAY = re.compile(r"(?:\\\[|\$\$)((?:(?!\\\[|\$\$).){1,500}?)(?:\\\]|\$\$)[\s.]*\Z", re.S)
_HASHES = re.compile(r"^[ ]{0,3}####(?!#)([^\n]*)$", re.M)
_HASH_NUMBER = re.compile(r"(\\?[$€£¥]?[-+]?\\?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\\?%)?)\.?(?=\s|$)")
_HEADING = re.compile(r"\d{1,2}[.):]\s+\S")
_PHRASE = re.compile(
    r"answer\b[^.:\n]{0,60}?\b(?:is|are|equals)\b[ ]*:?[ ]*([^\n]*)|答案(?:就)?(?:是|为)[ ]*:?[ ]*([^\n]*)", re.I
)
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z]|\s*$)|[;!?](?=\s|$)")
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_AFTER_VERB = re.compile(r".*(?:\b(?:is|are|equals|be)\b|(?<!\d):(?!\d)|是|为)\s*(\S.*)$", re.S)
_AFTER_EQUALS = re.compile(r".*=\s*(\S.*)$", re.S)
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?![A-Za-z])")
_MATH_SIGN = re.compile(r"[\d\\$=√π∞]|^[A-J]$")


def final_answer(output: str) -> Found | None:
    """The final answer of a model's text by the rules above; None if it gives none."""
    visible = after_thinking(output)
    if visible is None:
        return None
    start, end = visible.rfind("<answer>"), visible.rfind("</answer>")
    if start >= 0:
        return _of_tag(fold_width(visible[start + len("<answer>") : end][-WINDOW:])) if end > start else None
    text = first_turn(fold_width(visible[-WINDOW:]))
    marks = _marks(text)
    if marks:
        return max(marks, key=lambda mark: mark[0])[1]
    return _phrase(text) or _bold(text) or _last_line(text)


def after_thinking(output: str) -> str | None:
    """The text after the thinking; None if the thinking never ends."""
    end = max((m.end() for m in _THINK_END.finditer(output)), default=0)
    visible = output[end:]
    return visible if _THINK_START.search(visible) is None else None


def first_turn(text: str) -> str:
    """Without what follows the end of the model's turn."""
    for turn in _TURN.split(text):
        if turn.strip():
            return turn.rstrip()
    return ""


def _of_tag(content: str) -> Found | None:
    marks = _marks(content)
    if not marks:
        return _found(_plain(content), "tag")
    found = max(marks, key=lambda mark: mark[0])[1]
    return Found(found.text, "tag") if found else None


def _marks(text: str) -> list[tuple[int, Found | None]]:
    """Explicit marks with their positions: boxes (None for one that never closes), answer lines, hashes."""
    marks: list[tuple[int, Found | None]] = []
    boxes = last_boxes(text)
    if boxes is not None:
        marks.append((boxes.start, _found(", ".join(boxes.contents), "box") if boxes.contents else None))
    for match in _LINE.finditer(text):
        if found := _from_line(match[1] or match[2] or match[3] or _next_line(text, match.end())):
            marks.append((match.start(), found))
    for match in _HASHES.finditer(text):
        if found := _from_hashes(match[1].strip(), last=not text[match.end() :].strip()):
            marks.append((match.start(), found))
    return marks


def _next_line(text: str, at: int) -> str:
    """The line, or the displayed formula, that follows."""
    if display := _DISPLAY.match(text, at, at + 2000):
        return display[1]
    return text[at : at + 2000].lstrip().split("\n", 1)[0]


def _from_line(content: str) -> Found | None:
    """The answer of an answer line: its content, or the end of its sentence if it is prose."""
    content = _plain(_INNER_LINE.split(content)[-1])
    sentence = _first_sentence(content)
    if len(_PROSE.findall(sentence)) > 3:
        sentence = _ending(sentence)
    return _found(sentence, "line")


def _from_hashes(content: str, *, last: bool) -> Found | None:
    """The answer after ####: a number, or the whole last line; None for a heading."""
    if _HEADING.match(content):
        return None
    number = _HASH_NUMBER.match(content)
    if number is not None:
        return _found(content if last else number[1], "hashes")
    return _found(_plain(content), "hashes") if last else None


def _phrase(text: str) -> Found | None:
    matches = list(_PHRASE.finditer(text))
    if not matches:
        return None
    content = (matches[-1][1] or matches[-1][2] or "").strip() or _next_line(text, matches[-1].end())
    return _found(_first_sentence(_plain(content)), "phrase")


def _bold(text: str) -> Found | None:
    lines = [line for line in text.splitlines() if line.strip()][-2:]
    for line in reversed(lines):
        for content in reversed(_BOLD.findall(line)):
            if _looks_mathematical(content):
                return _found(content, "bold")
    return None


def _last_line(text: str) -> Found | None:
    if display := _LAST_DISPLAY.search(text[-600:]):
        return _found(display[1], "last line")
    lines = [line for line in text.splitlines() if line.strip()]
    line = _plain(lines[-1]) if lines else ""
    line = line.rstrip(" .")
    if len(line) <= 80 and _looks_mathematical(line):
        return _found(line, "last line")
    ending = _ending(line[-400:])
    return _found(ending, "last line") if _looks_mathematical(ending) else None


def _ending(sentence: str) -> str:
    """What a sentence says in the end: what follows its last verb, or its last equals sign; empty if neither."""
    match = _AFTER_VERB.match(sentence) or _AFTER_EQUALS.match(sentence)
    return match[1] if match else ""


def _looks_mathematical(text: str) -> bool:
    """Some sign of mathematics and hardly any prose; "5 apples" passes, "Step 3: add both sides" does not."""
    return bool(_MATH_SIGN.search(text.strip())) and len(_PROSE.findall(text)) <= 1


def _plain(text: str) -> str:
    """Without Markdown emphasis and code marks around the words."""
    return re.sub(r"\*\*|__|(?<!\\)`|^\s*[*>]\s+", "", text).strip().strip("*").strip()


def _first_sentence(text: str) -> str:
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _found(text: str, place: Place) -> Found | None:
    text = text.strip()
    return Found(text, place) if text else None
