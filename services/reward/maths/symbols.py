r"""Expressions with letters, roots and functions: parsed by math-verify's LaTeX grammar, compared by their values.

    constants      exactly if rational, else the difference is computed until it has digits or vanishes at 500 digits
    expressions    equal at random points (fixed seed): a polynomial or analytic identity does not hold by chance
    equations      lhs - rhs of one is a constant multiple of the other's (after clearing fractions)
    inequalities   the same with a positive multiple; chains link by link
    sets           math-verify's comparison of sympy sets
    matrices       entry by entry

math-verify itself compares constants to 15 absolute digits (so 1/2004! equals 1/2006!) and expressions with
`simplify`, which is where it hangs; both are avoided here. At a point where both sides leave the real numbers the
comparison looks elsewhere (sqrt(1/n) is 1/sqrt(n)); where only one does, they differ (log x^2 is not 2 log x).

Not evaluated: the text goes through an ANTLR grammar, only tokens made of digits reach sympy's own reader.
Not covered: differential equations, sums and integrals that do not read alike term by term.
"""

import random
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from latex2sympy2_extended.logic import And
from math_verify import verify as compare_sets
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from services.reward.maths.latex import for_parser
from services.reward.maths.limits import TooLargeError, check_expression, check_text, has_unknown_operator, is_code

DIGITS = 30
MAX_DIGITS = 500
TOLERANCE = sympy.Float("1e-20")
ATTEMPTS, ENOUGH = 40, 5

Point = dict[sympy.Symbol, sympy.Rational]
_FLIPPED = {sympy.StrictGreaterThan: sympy.StrictLessThan, sympy.GreaterThan: sympy.LessThan}
_UNEVALUATED = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative, sympy.Limit)


def same_expression(gold: str, answer: str) -> bool:
    """Whether two canonical texts are equal as mathematics; not if one does not parse. Raises `TooLargeError`."""
    try:
        one, other = _parse(gold), _parse(answer)
        return one is not None and other is not None and _same(one, other)
    except (TooLargeError, MemoryError):
        raise
    except Exception:  # the grammar and sympy raise all kinds, the bare class included
        return False


def value_of(text: str) -> Fraction | None:
    """The value of a real constant to 30 digits; None for anything else. Raises `TooLargeError`."""
    try:
        parsed = _parse(text)
        if not isinstance(parsed, sympy.Expr) or parsed.free_symbols:
            return None
        digits = _digits(parsed, {})
        return None if digits is None else Fraction(str(digits))
    except (TooLargeError, MemoryError):
        raise
    except Exception:  # as above
        return None


@lru_cache(maxsize=256)
def _parse(text: str) -> sympy.Basic | None:
    """The unevaluated expression of a text, its decimals made exact; None for what is no mathematics."""
    latex = for_parser(text)
    if is_code(latex) or has_unknown_operator(latex):
        return None
    check_text(latex)
    config = ConversionConfig(lowercase_symbols=False)
    parsed = latex2sympy(latex, is_real=None, normalization_config=None, conversion_config=config)
    if isinstance(parsed, sympy.Basic):
        check_expression(parsed)
        exact = {f: sympy.Rational(str(f)) for f in parsed.atoms(sympy.Float)}
        unknown = {f: sympy.Symbol(str(f)) for f in parsed.atoms(AppliedUndef)}
        parsed = parsed.xreplace(exact | unknown | {sympy.Symbol("i"): sympy.I})
    return parsed


def _same(gold: sympy.Basic, answer: sympy.Basic) -> bool:
    if isinstance(gold, sympy.MatrixBase) or isinstance(answer, sympy.MatrixBase):
        return _same_matrix(gold, answer)
    if isinstance(gold, sympy.Set) or isinstance(answer, sympy.Set):
        return bool(compare_sets(gold, answer, timeout_seconds=None, allow_set_relation_comp=True))
    if isinstance(gold, Relational | And) or isinstance(answer, Relational | And):
        return _same_relations(_links(gold), _links(answer))
    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return bool(gold == answer)
    return _same_values(gold, answer)


def _same_matrix(gold: sympy.Basic, answer: sympy.Basic) -> bool:
    if not isinstance(gold, sympy.MatrixBase | sympy.MatrixExpr):
        return False
    if not isinstance(answer, sympy.MatrixBase | sympy.MatrixExpr) or gold.shape != answer.shape:
        return False
    pairs = zip(sympy.Matrix(gold.doit()), sympy.Matrix(answer.doit()), strict=True)
    return all(_same_values(one, other) for one, other in pairs)


def _same_values(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    if gold == answer:
        return True
    if gold.has(*_UNEVALUATED) or answer.has(*_UNEVALUATED):
        return bool(gold.doit() == answer.doit())
    if not gold.free_symbols and not answer.free_symbols:
        return _same_constant(gold, answer)
    agreements = 0
    for point in _points(gold.free_symbols | answer.free_symbols):
        one, other = _digits(gold, point), _digits(answer, point)
        if one is None and other is None:
            continue
        if one is None or other is None or not _close(one, other):
            return False
        agreements += 1
        if agreements == ENOUGH:
            return True
    return False


def _same_constant(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    one, other = gold.doit(), answer.doit()
    if one.is_Rational and other.is_Rational:
        return bool(one == other)
    if not one.is_finite or not other.is_finite:
        return bool(one == other)
    difference = (one - other).evalf(20, maxn=MAX_DIGITS)
    return bool(difference == 0) or all(not _significant(part) for part in difference.as_real_imag())


def _links(relation: sympy.Basic) -> list[Relational]:
    """The links of a chain a < b < c, all pointing the same way."""
    links = relation._unsorted_args if isinstance(relation, And) else (relation,)
    return [_FLIPPED[type(r)](r.rhs, r.lhs, evaluate=False) if type(r) in _FLIPPED else r for r in links]


def _same_relations(gold: list[Relational], answer: list[Relational]) -> bool:
    if len(gold) != len(answer) or not all(isinstance(r, Relational) for r in [*gold, *answer]):
        return False
    left = list(answer)
    for link in gold:
        match = next((r for r in left if type(r) is type(link) and _same_relation(link, r)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_relation(gold: Relational, answer: Relational) -> bool:
    one, other = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    ordered = not isinstance(gold, sympy.Eq | sympy.Ne)
    if _proportional(one, other, positive=ordered):
        return True
    return not ordered and _proportional(_numerator(one), _numerator(other), positive=False)


def _numerator(expression: sympy.Expr) -> sympy.Expr:
    return sympy.fraction(sympy.together(expression))[0]


def _proportional(one: sympy.Expr, other: sympy.Expr, *, positive: bool) -> bool:
    """Whether one / other is the same constant, not 0, at every point."""
    ratio: sympy.Expr | None = None
    agreements = 0
    for point in _points(one.free_symbols | other.free_symbols):
        above, below = _digits(one, point), _digits(other, point)
        if above is None or below is None or not above or not below:
            continue
        if ratio is None:
            ratio = above / below
        elif not _close(above, ratio * below):
            return False
        agreements += 1
    return ratio is not None and agreements >= ENOUGH and (not positive or bool(sympy.re(ratio) > 0))


def _points(symbols: set[sympy.Symbol]) -> Iterator[Point]:
    """Rational points of several sizes and both signs, the same ones every time."""
    names = sorted(symbols, key=str)
    numbers = random.Random(20250317)
    scales = (1, 8, -8, 60, -1)
    for attempt in range(ATTEMPTS):
        scale = scales[attempt % len(scales)]
        yield {name: sympy.Rational(scale * numbers.randint(100, 1000), 1009) for name in names}


def _digits(expression: sympy.Expr, point: Point) -> sympy.Expr | None:
    """The value at a point to 30 digits; None where it is undefined or leaves the reals without an i in sight."""
    value = expression.evalf(DIGITS, subs=point, maxn=4 * DIGITS)
    real, imaginary = value.as_real_imag()
    if not real.is_Number or not imaginary.is_Number or not real.is_finite or not imaginary.is_finite:
        return None
    if _significant(imaginary):
        return value if expression.has(sympy.I) else None
    return real if _significant(real) else sympy.S.Zero


def _significant(number: sympy.Expr) -> bool:
    """Not zero, and not the noise that evalf marks with a precision of one bit."""
    return bool(number != 0) and not (number.is_Float and number._prec <= 1)


def _close(one: sympy.Expr, other: sympy.Expr) -> bool:
    return bool(abs(one - other) <= TOLERANCE * max(abs(one), abs(other)))
