r"""What is refused before it is computed: texts and expressions that would take for ever or fill the memory.

    text        too long, too many digits, too deeply nested, four exponents on top of each other,
                names and quotes that are code and not mathematics
    expression  a constant beyond 10^10000, an exponent beyond 10000, a factorial or binomial of more than 5000

Such an answer is wrong with the reason "timeout (foreseen): ..."; what slips through meets the pool's deadline. An
answer that equals the gold letter by letter is right whatever its size: nothing has to be computed for it.
"""

import math
import re

import sympy

MAX_LENGTH = 1500
MAX_DIGITS = 400
MAX_DEPTH = 24
MAX_TOWER = 3
MAX_LOG10 = 10_000.0
MAX_EXPONENT = 10_000.0
MAX_FACTORIAL = 5_000
MAX_NODES = 3_000
MAX_POWERS = 12
MAX_TERMS = 1_000

_CODE = re.compile(r"__|['\"`;@#]|\\(?:input|include|write|catcode|def)(?![A-Za-z])")
_OPERATOR = re.compile(r"\\text\s*\{\s*(?!(?:floor|ceil|gcd|lcm|arc?sinh|arc?cosh|arc?tanh|max|min)\b)")
_BINOMIAL = re.compile(r"\\binom\{\s*(\d+)\s*\}")


class TooLargeError(Exception):
    """Computing with this would not end in time."""


def check_text(text: str) -> None:
    """Raise `TooLargeError` if parsing or computing this text could not end in time."""
    if len(text) > MAX_LENGTH:
        raise TooLargeError("long expression")
    if max((len(run) for run in re.findall(r"\d+", text)), default=0) > MAX_DIGITS:
        raise TooLargeError("long number")
    if any(len(n) > 4 or int(n) > MAX_FACTORIAL for n in _BINOMIAL.findall(text)):
        raise TooLargeError("binomial coefficient")
    if re.search(r"\\(?:gcd|lcm)", text) and re.search(r"\^|!", text):
        raise TooLargeError("divisors of powers")
    depth, tower = _nesting(text)
    if depth > MAX_DEPTH:
        raise TooLargeError("deep nesting")
    if tower > MAX_TOWER:
        raise TooLargeError("power tower")


def check_shape(text: str) -> None:
    """Raise `TooLargeError` for brackets nested too deeply to take apart."""
    if _nesting(text)[0] > MAX_DEPTH:
        raise TooLargeError("deep nesting")


def is_code(text: str) -> bool:
    """Underscores in pairs, quotes and the like: no mathematics; such a text is compared letter by letter only."""
    return bool(_CODE.search(text))


def has_unknown_operator(text: str) -> bool:
    r"""Words in \text{}: nothing to compute with."""
    return bool(_OPERATOR.search(text))


def check_expression(expression: sympy.Basic) -> None:
    """Raise `TooLargeError` if an unevaluated expression has a constant that must not be computed."""
    if _powers(expression) > MAX_POWERS:
        raise TooLargeError("powers of powers")
    for count, node in enumerate(sympy.preorder_traversal(expression)):
        if count > MAX_NODES:
            raise TooLargeError("large expression")
        if isinstance(node, sympy.factorial | sympy.binomial | sympy.gamma) and node.args[0].is_number:
            _log10_of(node)
        if isinstance(node, sympy.Pow):
            _check_power(node)
        if isinstance(node, sympy.Sum | sympy.Product):
            _check_terms(node)


def _check_terms(series: sympy.Sum | sympy.Product) -> None:
    for _, *ends in series.limits:
        if any(end.is_number and end.is_finite and _log10_of(end) > math.log10(MAX_TERMS) for end in ends):
            raise TooLargeError("many terms")


def _check_power(power: sympy.Pow) -> None:
    base, exponent = power.args
    if _height(power) > MAX_TOWER - 1:
        raise TooLargeError("power tower of variables")
    if exponent.is_number:
        size = _log10_of(exponent)
        if size > math.log10(MAX_EXPONENT) and not _is_unit(base):
            raise TooLargeError("large exponent")
        if base.is_number and abs(_log10_of(base)) * 10**size > MAX_LOG10:
            raise TooLargeError("large power")


def _powers(node: sympy.Basic) -> int:
    """Powers (fractions and roots too) within each other; evaluating takes time exponential in it."""
    return max((_powers(a) for a in node.args), default=0) + isinstance(node, sympy.Pow)


def _height(node: sympy.Basic) -> int:
    """Exponents on top of each other that hold a variable."""
    inner = max((_height(a) for a in node.args if a.free_symbols), default=0)
    return inner + (isinstance(node, sympy.Pow) and bool(node.args[1].free_symbols))


def _is_unit(base: sympy.Basic) -> bool:
    return base in (1, -1)


def _log10_of(node: sympy.Basic) -> float:
    """Bound of log10 of the absolute value of a constant (0 for those below 1 whose size does not matter)."""
    if isinstance(node, sympy.Integer | sympy.Rational):
        return _log10_int(abs(node.p)) - _log10_int(node.q)
    if isinstance(node, sympy.Float):
        return float(sympy.log(abs(node), 10)) if node else 0.0
    if isinstance(node, sympy.Pow):
        _check_power(node)
        return _log10_of(node.args[0]) * _signed(node.args[1])
    if isinstance(node, sympy.Mul):
        return _bounded(sum(_log10_of(a) for a in node.args))
    if isinstance(node, sympy.factorial | sympy.gamma | sympy.binomial):
        size = 10 ** min(_log10_of(node.args[0]), 20)
        if size > MAX_FACTORIAL:
            raise TooLargeError("large factorial")
        return _bounded(math.lgamma(size + 2) / math.log(10))
    sizes = [_log10_of(a) for a in node.args]
    return max([0.0, *sizes]) + math.log10(len(sizes) + 1)


def _signed(exponent: sympy.Basic) -> float:
    size = 10 ** _log10_of(exponent)
    return -size if exponent.could_extract_minus_sign() else size


def _log10_int(value: int) -> float:
    return math.log10(value) if value else 0.0


def _bounded(size: float) -> float:
    if size > MAX_LOG10:
        raise TooLargeError("large number")
    return size


def _nesting(text: str) -> tuple[int, int]:
    """Deepest nesting of brackets, and the longest chain of exponents on top of each other."""
    tower = deepest = highest = 0
    stack: list[bool] = []
    raised = False
    for sign in text:
        if sign in "{([":
            stack.append(raised)
            tower += raised
        elif sign in "})]" and stack:
            tower -= stack.pop()
        deepest = max(deepest, len(stack))
        raised = sign == "^" or (raised and sign == " ")
        highest = max(highest, tower + raised)
    return deepest, highest
