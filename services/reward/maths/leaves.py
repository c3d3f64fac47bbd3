r"""Whether two values without outer shape are equal, cheapest test first; sympy only where letters or roots remain.

1. the same text                                4. option letters, words, times of day, ratios, numerals with a base
2. units must agree                             5. numbers, exactly
3. percent: 28% is 28% and 0.28; the sign may be missing on one side where the number is above 1 (not a share)
6. expressions (symbols.py)
"""

from services.reward.maths.notation import key
from services.reward.maths.numerals import Number, is_rounding, read_based, read_number, same_number
from services.reward.maths.symbols import same_expression, value_of
from services.reward.maths.units import Quantity, take_apart, units_agree
from services.reward.maths.words import clock_of, option_of, ratio_of, without_label, words_of


def same_leaf(gold: str, answer: str) -> bool:
    """Whether two canonical texts are the same value."""
    if key(gold) == key(answer):
        return bool(key(gold))
    option = _by_option(gold, answer)
    return _same_value(gold, answer) if option is None else option


def _same_value(gold: str, answer: str) -> bool:
    """As `same_leaf`, but an option letter before the value is part of it."""
    if key(gold) == key(answer):
        return True
    for decide in (_by_words, _by_clock, _by_base):
        decision = decide(gold, answer)
        if decision is not None:
            return decision
    return _same_quantity(take_apart(gold), take_apart(answer))


def rounds_to(decimal: str, exact: str) -> bool:
    """Whether a decimal of any length is `exact`, rounded or cut off: `2/3 = 0.67`."""
    number, value = read_number(take_apart(decimal).body), value_of(take_apart(exact).body)
    return number is not None and value is not None and is_rounding(number, value)


def _by_option(gold: str, answer: str) -> bool | None:
    wanted, label = option_of(gold), without_label(answer)
    if wanted is not None and (given := option_of(answer)) is not None:
        return wanted == given
    if (labelled := without_label(gold)) is not None:
        return _same_value(labelled[1], label[1] if label else answer) and (not label or label[0] == labelled[0])
    return _same_value(gold, label[1]) if label is not None and wanted is None else None


def _by_words(gold: str, answer: str) -> bool | None:
    wanted, given = words_of(gold), words_of(answer)
    return None if wanted is None and given is None else wanted == given


def _by_clock(gold: str, answer: str) -> bool | None:
    """Times of day are equal as written; ratios are equal if proportional; a ratio of two may be a fraction."""
    if ":" not in gold and ":" not in answer:
        return None
    wanted, given = clock_of(gold), clock_of(answer)
    if wanted and given:
        return wanted[:3] == given[:3] and (wanted[3] == given[3] or not wanted[3] or not given[3])
    return _same_ratio(gold, answer)


def _same_ratio(gold: str, answer: str) -> bool | None:
    one, other = ratio_of(gold), ratio_of(answer)
    if one and other:
        return one == other
    ratio, number = (one, read_number(answer)) if one else (other, read_number(gold))
    return None if ratio is None or number is None else len(ratio) == 2 and number.value * ratio[1] == 1


def _by_base(gold: str, answer: str) -> bool | None:
    wanted, given = read_based(gold), read_based(answer)
    if wanted is None and given is None:
        return None
    if wanted is not None and given is not None:
        return wanted == given
    based, plain = (wanted, answer) if wanted else (given, gold)
    return based is not None and based.base == 10 and _same_value(based.digits, plain)


def _same_quantity(gold: Quantity, answer: Quantity) -> bool:
    if not gold.body or not answer.body or not units_agree(gold.unit, answer.unit):
        return False
    if "°" in (gold.unit, answer.unit) and gold.unit != answer.unit:
        return _same_body(gold.body, answer.body) or _same_angle(gold, answer)
    if gold.percent == answer.percent:
        return _same_body(gold.body, answer.body)
    share, bare = (gold.body, answer.body) if gold.percent else (answer.body, gold.body)
    number, other = read_number(share), read_number(bare)
    if number is None or other is None:
        return _same_body(rf"\frac{{{share}}}{{100}}", bare)
    as_share = Number(number.value / 100, number.places + 2, number.digits)
    return same_number(as_share, other) or (abs(other.value) > 1 and number.value == other.value)


def _same_angle(gold: Quantity, answer: Quantity) -> bool:
    """Degrees on one side, a multiple of pi on the other."""
    degrees, radians = (gold.body, answer.body) if gold.unit == "°" else (answer.body, gold.body)
    return r"\pi" in radians and same_expression(rf"\frac{{({degrees})\pi}}{{180}}", radians)


def _same_body(gold: str, answer: str) -> bool:
    wanted, given = read_number(gold), read_number(answer)
    if wanted is not None and given is not None:
        return same_number(wanted, given)
    if same_expression(gold, answer):
        return True
    decimal, exact = (wanted, answer) if wanted is not None else (given, gold)
    if decimal is None or not decimal.rounded or (value := value_of(exact)) is None:
        return False
    return is_rounding(decimal, value)
