"""Every field that comes over a socket has a bound, so that a decoded message cannot be larger than its limits say."""

import math
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from common import messages, protocol
from common.codec import decode
from common.errors import WireError
from tests.contract import golden

KINDS = [
    messages.Prompt, messages.Group, messages.Scored, messages.Batch, messages.Feedback, messages.Policy,
    messages.RunState, protocol.QueueStats, *protocol.ToBroker.__args__, *protocol.FromBroker.__args__,
]  # fmt: skip


def unbounded(kind: inspect.Type, where: str) -> Iterator[str]:
    """Fields below `kind` without a bound."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from unbounded(field.type, f"{where}.{field.name}")
    elif isinstance(kind, inspect.UnionType):
        for part in kind.types:
            yield from unbounded(part, where)
    elif isinstance(kind, inspect.ListType | inspect.DictType | inspect.StrType | inspect.BytesType):
        if kind.max_length is None:
            yield where
        if isinstance(kind, inspect.ListType):
            yield from unbounded(kind.item_type, f"{where}[]")
        if isinstance(kind, inspect.DictType):
            yield from unbounded(kind.key_type, f"{where} key")
            yield from unbounded(kind.value_type, f"{where} value")
    elif isinstance(kind, inspect.IntType | inspect.FloatType):
        if kind.ge is None or kind.le is None:
            yield where
    elif not isinstance(kind, inspect.NoneType | inspect.LiteralType | inspect.BoolType):
        yield f"{where}: {kind}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_every_message_is_bounded(kind: type) -> None:
    assert list(unbounded(inspect.type_info(kind), kind.__name__)) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["terms", "score", "scores", "gradient_variance", "totals", "weight"])
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(field: str, bad: float) -> None:
    kinds = {"gradient_variance": "Feedback", "totals": "Batch"}
    name = kinds.get(field, "Scored")
    message = msgspec.to_builtins(golden.messages()[name])
    assert decode(getattr(messages, name), [msgspec.msgpack.encode(message)])
    put(message, field, bad)
    with pytest.raises(WireError, match="float"):
        decode(getattr(messages, name), [msgspec.msgpack.encode(message)])


def put(message: dict, field: str, bad: float) -> None:
    """Replace a number of the message."""
    if field == "terms":
        message["terms"][0]["task"] = bad
    elif field == "score":
        message["verdicts"][0]["score"] = bad
    elif field == "scores":
        message["verdicts"][0]["scores"]["format"] = bad
    elif field == "weight":
        message["group"]["prompt"]["task"]["terms"][0]["weight"] = bad
    elif field == "totals":
        message["totals"]["keep_rate"] = bad
    else:
        message["groups"][0][field] = bad
