r"""Numbers read exactly, as fractions, without sympy.

    12  -3  7,425,000  1 000  34.0  .5  016            integers and decimals
    2/3  \frac{2}{3}  -\frac{63}{400}  1.5/2           fractions
    2\frac{1}{2}  2 1/2                                mixed numbers
    1.2\cdot10^{5}  3e-4                               scientific notation
    0.\overline{3}  0.1\overline{6}                     repeating decimals
    52_8  1A_{16}                                      numerals in a base: their own kind, see `Based`

A comma is a thousands separator or separates values, never a decimal point: "0,1" are two values.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 400
MAX_POWER = 400
ROUNDED_DIGITS = 6

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+|\d+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.\d*)?|\.\d+)"
_SIGNED = rf"[-+]?\s*{_DECIMAL}"
_NUMBER = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:(?P<whole>{_WHOLE})\s*(?:\\frac\{{\s*(?P<a>\d+)\s*\}}\{{\s*(?P<b>\d+)\s*\}}|\s(?P<c>[1-9]\d*)/(?P<d>\d+))"
    rf"|\\frac\{{\s*(?P<above>{_SIGNED})\s*\}}\{{\s*(?P<below>{_SIGNED})\s*\}}"
    rf"|(?P<over>{_DECIMAL})\s*/\s*(?P<under>{_DECIMAL})"
    rf"|(?P<decimal>{_DECIMAL})(?:\s*(?:\\cdot|\*|x)\s*10\s*\^\s*(?:\{{\s*)?(?P<power>[-+]?\d+)\s*\}}?|[eE](?P<e>[-+]?\d+))?)"
)
_REPEATING = re.compile(r"([-+]?)\s*(\d*)\.(\d*)\\(?:overline|bar|dot)\{(\d+)\}(?:\\ldots)?")
_BASED = re.compile(
    r"\(?\s*(?:\\text\{)?\s*([-+]?[0-9A-Z]+)\s*\}?\s*\)?\s*_\s*\{?\s*\(?\s*(?:\\text\{)?\s*(?:base\s*)?"
    r"(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen)\s*\}?\s*\)?\s*\}?"
)
_BASES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12,
    "sixteen": 16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Number:
    """A number and how finely it was written."""

    value: Fraction
    places: int = 0
    """Decimal places written; 0 for integers and fractions."""
    digits: int = 0
    """Significant digits written; 0 for fractions."""

    @property
    def rounded(self) -> bool:
        """Written finely enough to stand for a value that it does not equal."""
        return self.places >= ROUNDED_DIGITS and self.digits >= ROUNDED_DIGITS

    @property
    def unit(self) -> Fraction:
        """One unit of the last decimal place."""
        return Fraction(1, 10**self.places)


@dataclass(frozen=True, slots=True)
class Based:
    """Digits with a base: 52_8 is neither 528 nor 52 nor 42."""

    digits: str
    base: int


def read_number(text: str) -> Number | None:
    """The number that a canonical text is; None if it is none, or too long to compute with."""
    if len(text) <= MAX_DIGITS and (repeating := _REPEATING.fullmatch(text.strip())):
        return _repeating(repeating)
    if len(text) > MAX_DIGITS or (match := _NUMBER.fullmatch(text.strip())) is None:
        return None
    found = _mixed(match) or _fraction(match) or _decimal(match)
    if found is None or match["sign"] != "-":
        return found
    return Number(-found.value, found.places, found.digits)


def read_based(text: str) -> Based | None:
    """A numeral with a base other than ten; None if the text is none."""
    match = _BASED.fullmatch(text.strip())
    if match is None or not any(sign.isdigit() for sign in match[1]):
        return None
    base = _BASES.get(match[2]) or int(match[2])
    return Based(match[1].lstrip("+").lstrip("0") or "0", base)


def same_number(gold: Number, answer: Number) -> bool:
    """Equal; or one is the other, rounded or cut off to six or more decimal places and significant digits.

    An integer is only equal to itself, and so is a decimal with fewer places: 0.33 is not 1/3, 100009 is not 100000.
    """
    if gold.value == answer.value:
        return True
    if gold.rounded and answer.rounded:
        return 2 * abs(gold.value - answer.value) <= max(gold.unit, answer.unit)
    if answer.rounded and not gold.digits:
        return is_rounding(answer, gold.value)
    return gold.rounded and not answer.digits and is_rounding(gold, answer.value)


def is_rounding(decimal: Number, exact: Fraction) -> bool:
    """Whether a decimal is `exact`, rounded or cut off after its last place."""
    left = abs(exact) - abs(decimal.value)
    same_sign = exact * decimal.value >= 0
    return same_sign and (2 * abs(left) <= decimal.unit or 0 <= left < decimal.unit)


def _mixed(match: re.Match[str]) -> Number | None:
    if match["whole"] is None:
        return None
    above, below = int(match["a"] or match["c"]), int(match["b"] or match["d"])
    return Number(_value(match["whole"]) + Fraction(above, below)) if below else None


def _fraction(match: re.Match[str]) -> Number | None:
    above, below = match["above"] or match["over"], match["below"] or match["under"]
    if above is None or not _value(below):
        return None
    return Number(_value(above) / _value(below))


def _decimal(match: re.Match[str]) -> Number | None:
    text = match["decimal"]
    power = int(match["power"] or match["e"] or 0)
    if text is None or abs(power) > MAX_POWER:
        return None
    value = _value(text) * Fraction(10) ** power
    places = max(0, len(text.partition(".")[2]) - power)
    if value.denominator == 1 and "." not in text:
        places = 0
    return Number(value, places, len(re.sub(r"[^\d]", "", text).lstrip("0")) or 1)


def _repeating(match: re.Match[str]) -> Number:
    """0.1(6) = (16 - 1) / 90."""
    sign, whole, fixed, period = match.groups()
    value = Fraction(
        int(whole + fixed + period or "0") - int(whole + fixed or "0"), 10 ** len(fixed) * (10 ** len(period) - 1)
    )
    return Number(-value if sign == "-" else value)


def _value(text: str) -> Fraction:
    plain = re.sub(r"[, ]", "", text).rstrip(".")
    return Fraction(plain if not plain.startswith(".") else "0" + plain)
