"""What is on the wire and in the broker's file: a service of this version reads what one of the last version wrote."""

import json

import msgspec
import pytest

from tests.contract.golden import FILE, current, messages

GOLDEN = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", messages())
def test_a_message_has_the_bytes_it_always_had(name: str) -> None:
    # another byte is a change of the wire: if it is meant, `python -m tests.contract.golden`
    assert current()[name] == GOLDEN[name]


@pytest.mark.parametrize("name", messages())
def test_the_bytes_read_back_as_the_message(name: str) -> None:
    message = messages()[name]
    assert msgspec.msgpack.decode(bytes.fromhex(GOLDEN[name]), type=type(message)) == message


def test_a_task_and_a_verdict_without_the_newer_fields_are_read() -> None:
    old = {"verifier": "math", "gold": "72", "tests": "", "data_source": ""}
    task = msgspec.convert(old, type=type(messages()["Prompt"].task))  # type: ignore[attr-defined]
    assert (task.metadata, task.terms) == ("", [])
