r"""Units: what follows a number and does not change it.

A unit that only one side gives is ignored ("125 miles" for "125"); two units must agree, under their common names
("15 cm^2" and "15 square centimetres", but not "5 cm" and "5 m"). Nothing is converted. Unknown words agree if those
of one side are among those of the other ("12 red apples" for "12 apples"). "Units" agree with any; so does no modulus
with a modulus ("3" for "3 mod 7").
"""

import re
from typing import NamedTuple

_ALIASES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "dm": "decimeter decimetre", "m": "meter metre",
    "km": "kilometer kilometre kms", "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile",
    "mg": "milligram", "g": "gram", "kg": "kilogram kilo kgs", "t": "tonne ton", "lb": "pound lbs", "oz": "ounce",
    "ml": "milliliter millilitre", "l": "liter litre", "gal": "gallon", "s": "second sec secs", "min": "minute mins",
    "h": "hour hr hrs", "d": "day", "week": "wk", "month": "mo", "yr": "year yrs", "mph": "mi/h", "km/h": "kmh kph",
    "m/s": "mps", "$": "dollar usd bucks", "cent": "¢", "€": "euro eur", "£": "gbp", "¥": "yuan rmb cny yen 元",
    "rs": "rupee inr ₹", "°": "degree deg", "rad": "radian", "hz": "hertz", "n": "newton", "j": "joule", "w": "watt",
    "v": "volt", "a": "ampere amp", "unit": "单位", "mol": "mole",
}  # fmt: skip
_CANONICAL = {alias: unit for unit, aliases in _ALIASES.items() for alias in (unit, *aliases.split())}
_SHORT = {unit for unit in _CANONICAL if len(unit) >= 2 and unit.isascii() and unit.isalpha()}

_NOT_UNITS = re.compile(
    r"(?<![a-z])(?:factorial|squared|cubed|choose|plus|minus|times|over|divided|modulo|negative|half|dozen|hundred|sin|"
    r"cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|inf|infinity|if|when|where|for|alpha|beta|gamma|delta|theta|lambda|to|not)"
    r"(?![a-z])"
)
_MONEY = re.compile(r"(?:US\s*)?([$€£¥₹])\s*|(?:Rs\.?|USD|EUR)\s+(?=\d)")
_TEXT_UNIT = re.compile(r"\\text\{\s*([^{}]*?)\s*\}\s*((?:\^\s*\{?\s*-?\d\s*\}?)?)$")
_WORD_UNIT = re.compile(r"(?<=[\d})\]!°%])\s+([A-Za-z][A-Za-z./ -]*)((?:\s*\^\s*\{?\s*\d\s*\}?)?)$")
_SHORT_UNIT = re.compile(r"(?<=\d)([A-Za-z]{2,})((?:\^\{?\d\}?)?)$")
_CJK_UNIT = re.compile("(?<=[\\d})%])\\s*([\u4e00-\u9fff]{1,8})()$")
_SIGN_UNIT = re.compile(r"(?<=.)\s*(°\s*[CF]?|[$€£¥])$")


class Quantity(NamedTuple):
    """A canonical text taken apart."""

    body: str
    unit: str
    percent: bool


def take_apart(text: str) -> Quantity:
    """Body, unit (empty if none) and percent sign of a canonical text."""
    body, unit = text.strip(), ""
    if (money := _MONEY.match(body)) or re.match(r"[-+]\s*[$€£¥₹]", body):
        unit = _CANONICAL.get(money[1] or "", money[1] or "rs") if money else "$"
        body = re.sub(r"[$€£¥₹]\s*", "", body, count=1) if not money else body[money.end() :]
    for pattern in (_TEXT_UNIT, _WORD_UNIT, _SHORT_UNIT, _CJK_UNIT):
        match = pattern.search(body)
        if match and body[: match.start()].strip() and _is_unit(match[1], match[2], pattern):
            unit = unit or _canonical_unit(match[1], match[2])
            body = body[: match.start()].strip()
            break
    if sign := _SIGN_UNIT.search(body):
        unit, body = unit or sign[1].replace(" ", "").lower(), body[: sign.start()].strip()
    percent = body.endswith("%")
    return Quantity(body.rstrip("%").strip(), unit, percent)


def units_agree(one: str, other: str) -> bool:
    """Whether two canonical units may stand for the same."""
    if not one or not other or one == other or one.startswith("unit") or other.startswith("unit"):
        return True
    if _CANONICAL.get(one) or _CANONICAL.get(other):
        return False
    words, others = set(one.split()), set(other.split())
    return words <= others or others <= words


def _is_unit(words: str, power: str, pattern: re.Pattern[str]) -> bool:
    """In \\text{} and in Chinese almost anything is a unit; bare letters must be words or known short units."""
    words = words.lower()
    if _NOT_UNITS.search(words):
        return False
    if pattern is _SHORT_UNIT:
        return words in _SHORT
    if pattern is _WORD_UNIT:
        parts = re.findall(r"[a-z]+", words)
        known = all(part in _SHORT or part in ("per", "of", "m", "s", "h") or _is_word(part) for part in parts)
        return known and (len(words) > 1 or bool(power and words == "m"))
    return True


def _is_word(part: str) -> bool:
    return len(part) >= 3 and any(sign in "aeiou" for sign in part)


def _canonical_unit(words: str, power: str) -> str:
    """`square centimetres` -> `cm^2`, `km per hour` -> `km/h`, `apples` -> `apple`."""
    words = re.sub(r"\bper\b", "/", words.lower().replace(".", ""))
    exponent = re.sub(r"[^\d]", "", power)
    for word, number in (("square", "2"), ("sq", "2"), ("cubic", "3"), ("cu", "3")):
        words, replaced = re.subn(rf"\b{word}\b", " ", words)
        exponent = number if replaced and words.strip() else exponent
        words = words if words.strip() else word
    parts = [_canonical_word(part) for part in re.findall(r"[^\s/]+|/", words)]
    unit = " ".join(parts).replace(" / ", "/").strip()
    return _CANONICAL.get(unit, unit) + (f"^{exponent}" if exponent not in ("", "1") else "")


def _canonical_word(word: str) -> str:
    for form in (word, word.removesuffix("s"), word.removesuffix("es")):
        if form in _CANONICAL:
            return _CANONICAL[form]
    return word.removesuffix("s") if len(word) > 3 else word
