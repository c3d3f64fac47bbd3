r"""Whether two answers are equal: shape against shape, value against value.

    list    ~ list     the same values in any order, as often       {..} ~ {..}   the same values
    list    ~ set      the same values                              list ~ (..)   the same values in the same order
    (a, b)  ~ (a, b)   value by value, and the same brackets: (1,2) is not [1,2]; brackets of longer tuples are free
    x = 3   ~ 3        a name on one side only is ignored           x = 3 ~ y = 3  as equations: different
    0<x<1   ~ (0, 1)   an inequality in one variable is an interval
    (1, 2)  ~ {1, 2}   different

No part of an answer earns anything: one value of two, or five guesses of which one is right, are wrong.
"""

import re

from services.reward.maths.leaves import rounds_to, same_leaf
from services.reward.maths.limits import check_shape
from services.reward.maths.notation import key
from services.reward.maths.structure import Items, Leaf, Named, Node, is_name, read, split
from services.reward.maths.symbols import same_expression
from services.reward.maths.words import options_of, without_text

_RELATIONS = ("<", ">", r"\le", r"\ge")
_RELATION = re.compile(r"<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z])")
_WHOLE = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset|begin)")
"""Signs of sets and matrices, which are also compared as wholes."""


def same_answer(gold: str, answer: str) -> bool:
    """Whether two canonical texts are the same answer. Raises `TooLargeError` for what must not be computed."""
    if key(gold) == key(answer):
        return bool(key(gold))
    check_shape(gold)
    check_shape(answer)
    return _same(read(gold), read(answer))


def _same(gold: Node, answer: Node) -> bool:
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _same_named(gold, answer)
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return _same_leaves(gold, answer)
    gold, answer = _as_interval(gold, answer), _as_interval(answer, gold)
    if isinstance(gold, Items) and isinstance(answer, Items) and _same_items(gold, answer):
        return True
    if _lone(gold, answer):
        return True
    whole = _WHOLE.search(gold.text) or _WHOLE.search(answer.text)
    return bool(whole) and same_expression(gold.text, answer.text)


def _same_named(gold: Node, answer: Node) -> bool:
    """A name on one side only is ignored; two equal names are; otherwise both are equations."""
    one, other = (n.name if isinstance(n, Named) else None for n in (gold, answer))
    if one is not None and other is not None and key(one) != key(other) and one and other:
        return same_expression(gold.text, answer.text)
    for named, plain in ((gold, answer), (answer, gold)):
        if isinstance(named, Named) and isinstance(plain, Leaf) and len(split(plain.text, ("=",))) > 1:
            return same_expression(gold.text, answer.text)
    return _same(_value(gold), _value(answer))


def _value(node: Node) -> Node:
    return node.value if isinstance(node, Named) else node


def _same_leaves(gold: Leaf, answer: Leaf) -> bool:
    """Values, after an equation that is an identity (3 * 4 = 12) is replaced by its last side."""
    one, other = _settled(gold.text, answer.text), _settled(answer.text, gold.text)
    exact, *rounded = split(other, (r"\approx",))
    if not rounded or not exact:
        return same_leaf(one, other)
    return same_leaf(one, exact) or (rounds_to(rounded[-1], exact) and same_leaf(one, rounded[-1]))


def _settled(text: str, against: str) -> str:
    sides = split(text, ("=",))
    if len(sides) < 2 or "=" in against or not all(sides):
        return text
    return sides[-1] if all(same_leaf(side, sides[-1]) for side in sides[:-1]) else text


def _lone(gold: Node, answer: Node) -> bool:
    """A set of one value, or a list that says one value in several ways, against the value; BD against B, D."""
    if isinstance(gold, Leaf) and isinstance(answer, Items) and answer.kind == "list":
        letters = options_of(without_text(gold.text))
        if letters is not None:
            return _same_multiset(tuple(Leaf(letter) for letter in letters), answer.items)
        return all(_same(gold, item) for item in answer.items)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Items) and one.kind == "set" and len(one.items) == 1 and isinstance(other, Leaf):
            return _same(one.items[0], other) if one is gold else _same(other, one.items[0])
    return False


def _same_items(gold: Items, answer: Items) -> bool:
    kinds = {gold.kind, answer.kind}
    if "list" in kinds:
        return _same_lists(gold, answer)
    if gold.kind != answer.kind:
        return False
    if gold.kind == "set":
        return _same_set(gold.items, answer.items)
    if gold.kind == "union":
        return _same_multiset(gold.items, answer.items)
    if gold.kind == "tuple" and gold.brackets != answer.brackets and len(gold.items) == 2:
        return False
    return _same_sequence(gold.items, answer.items)


def _same_lists(gold: Items, answer: Items) -> bool:
    """At least one side is a list."""
    if gold.kind == answer.kind == "list" and _all_named(gold) and _all_named(answer):
        return _same_multiset(gold.items, answer.items)
    wanted, given = _values(gold), _values(answer)
    if gold.kind == "set" or answer.kind == "set":
        return _same_multiset(wanted, given)
    if "tuple" in (gold.kind, answer.kind):
        brackets = gold.brackets or answer.brackets
        return brackets == "()" and _same_sequence(wanted, given)
    if _distinct_names(gold) or _distinct_names(answer):
        return _same_sequence(wanted, given)
    if "union" in (gold.kind, answer.kind):
        intervals = [[_as_interval(value, None) for value in values] for values in (wanted, given)]
        return _same_multiset(tuple(intervals[0]), tuple(intervals[1]))
    return _same_multiset(wanted, _without_repeats(given) if len(_without_repeats(wanted)) == len(wanted) else given)


def _without_repeats(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple({key(node.text.replace(", ", ",")): node for node in nodes}.values())


def _all_named(node: Items) -> bool:
    return all(isinstance(item, Named) for item in node.items)


def _distinct_names(node: Items) -> bool:
    """`x = 1, y = 2`: values told apart by their names, not several values of one name (or of x_1, x_2)."""
    names = [key(re.sub(r"_\s*(?:\{[^{}]*\}|\w)", "", i.name)) for i in node.items if isinstance(i, Named)]
    return len(names) == len(node.items) and len(set(names)) > 1


def _values(node: Items) -> tuple[Node, ...]:
    return tuple(_value(item) for item in node.items)


def _same_sequence(gold: tuple[Node, ...], answer: tuple[Node, ...]) -> bool:
    return len(gold) == len(answer) and all(_same(g, a) for g, a in zip(gold, answer, strict=True))


def _same_set(gold: tuple[Node, ...], answer: tuple[Node, ...]) -> bool:
    return all(any(_same(g, a) for a in answer) for g in gold) and all(any(_same(g, a) for g in gold) for a in answer)


def _same_multiset(gold: tuple[Node, ...], answer: tuple[Node, ...]) -> bool:
    if len(gold) != len(answer):
        return False
    left = list(answer)
    for wanted in gold:
        match = next((at for at, given in enumerate(left) if _same(wanted, given)), None)
        if match is None:
            return False
        left.pop(match)
    return True


def _as_interval(node: Node, against: Node | None) -> Node:
    r"""An inequality as an interval where it meets one: `0 < x \le 1` is (0, 1]; else the node itself."""
    if not isinstance(node, Leaf) or (against is not None and not _is_interval(against)):
        return node
    sides, signs = split(node.text, _RELATIONS), _RELATION.findall(node.text)
    if len(signs) != len(sides) - 1 or len(sides) not in (2, 3):
        return node
    if all(sign in (">", r"\ge") for sign in signs):
        sides, signs = sides[::-1], [{">": "<", r"\ge": r"\le"}[sign] for sign in signs[::-1]]
    if len(sides) == 2:
        sides, signs = (
            ([r"-\infty", *sides], ["<", *signs]) if is_name(sides[0]) else ([*sides, r"\infty"], [*signs, "<"])
        )
    if not is_name(sides[1]) or any(sign in (">", r"\ge") for sign in signs):
        return node
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Items(node.text, "tuple", (read(sides[0]), read(sides[2])), brackets)


def _is_interval(node: Node) -> bool:
    return isinstance(node, Items) and (node.kind == "union" or (node.kind == "tuple" and len(node.items) == 2))
