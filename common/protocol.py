"""The broker's wire protocol: what a client and the broker may say to each other.

A ZeroMQ message is `[header, payload frame, ..., check]`. The header is one MessagePack map whose `type` names one of
the classes below; payload frames are opaque to the broker; `check` is the CRC-32 of all before it, since TCP's own sum
of 16 bits lets damage through. docs/ARCHITECTURE.md has the grammar on half a page.

    session   = Hello Welcome *( Take / Give / Watch / Ping ) [ Bye ]
    broker    = *( Deliver / Done / Refused / Register / Pong / Stranger / Unwelcome )

Every client message may be sent twice without harm: `Take` states a window, not an increment; `Give` is numbered and
remembered until the client has seen the answer; `Ping` names the leases that it keeps alive.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Literal
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

PROTOCOL_VERSION = 2
DISK_FULL = "disk full"
"""Reason of a `Refused` that is no answer: the client says the same again later."""

Name = Annotated[str, Meta(min_length=1, max_length=128)]
"""A queue, a register, a client or an item id."""
Text = Annotated[str, Meta(max_length=1024)]
"""A reason or a cause, for people."""
Count = Annotated[int, Meta(ge=0, le=2**40)]
Seconds = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
Value = Annotated[bytes, Meta(max_length=1 << 24)]
"""Of a register."""
Leases = Annotated[list[Count], Meta(max_length=1 << 16)]


class Hello(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker, first, after `Stranger` and whenever an answer is missing: opens or resumes its session.

    Resumed are the leases and the memory of requests; takes and watches are forgotten, so that nothing is delivered
    before the first `Ping` has told what the client holds. A new incarnation of a known name takes over at once: the
    leases of the old one go back to their queues, and it is unwelcome from then on.
    """

    name: Name
    incarnation: Name
    protocol: Count = PROTOCOL_VERSION


class Take(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker: hold at most `window` unsettled items of `queue` from now on. This is the credit."""

    queue: Name
    window: Count


class Offer(Struct, frozen=True, kw_only=True):
    """One item inside a `Give`; its `frames` payload frames follow those of the offers before it."""

    queue: Name
    id: Name
    frames: Annotated[int, Meta(ge=0, le=1 << 16)]


class Write(Struct, frozen=True, kw_only=True):
    """One register inside a `Give`. `expected` is the version it must have now (0: unset); None: any."""

    register: Name
    value: Value
    expected: Count | None = None


class Letter(Struct, frozen=True, kw_only=True):
    """What to do with a dead letter inside a `Give`: to the front of its queue with a fresh count, or away for good."""

    queue: Name
    id: Name
    action: Literal["retry", "drop"]


class Give(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker: one transaction. All offers, settles and writes happen, or none.

    Refused if a settled lease is not held by this session or an expected register version differs. An offer whose id
    was given before in that queue changes nothing.
    """

    request: Count
    """Number of this request in the session, from 1."""
    acked: Count = 0
    """All requests up to this one have been answered: the broker may forget them."""
    offers: Annotated[list[Offer], Meta(max_length=1 << 14)] = []
    settles: Leases = []
    reason: Text = "done"
    """Why the leases are settled; counted by queue and reason."""
    writes: Annotated[list[Write], Meta(max_length=64)] = []
    letters: Annotated[list[Letter], Meta(max_length=1 << 14)] = []
    """Dead letters that a person has decided about."""


class Watch(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker: send this register now and whenever it changes. `queue/NAME` holds a `QueueStats`."""

    register: Name


class Ping(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker: I live, and I work on these leases. A lease that no ping names returns to its queue.

    After `lease_s`, or at once if it is the first ping after `Hello`: then the delivery never arrived.
    """

    held: Leases = []


class Bye(Struct, frozen=True, kw_only=True, tag=True):
    """Client -> broker: the session ends; what it holds goes back without counting as a failed delivery."""


class Welcome(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: the session is open; ping every `heartbeat_s`, silence of `lease_s` loses the leases."""

    broker: Name
    """Incarnation of the broker process."""
    heartbeat_s: Seconds
    lease_s: Seconds


class Deliver(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: one item, under a lease; its payload frames follow."""

    queue: Name
    id: Name
    lease: Count
    delivery: Count
    """1 at the first delivery."""


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: the request is committed to disk."""

    request: Count


class Refused(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: nothing of the request was done."""

    request: Count
    reason: Text
    leases: Leases = []
    """The settled leases that this session does not hold."""


class Register(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: the latest value of a watched register; version 0 and empty value: not set yet."""

    name: Name
    version: Count
    value: Value


class Pong(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: answer to `Ping`; `lost` names leases the ping claimed that are no longer the client's."""

    lost: Leases = []


class Stranger(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: no session for you. Say `Hello`, then repeat your takes, watches and open requests."""


class Unwelcome(Struct, frozen=True, kw_only=True, tag=True):
    """Broker -> client: there will never be a session for this incarnation. The process should end."""

    reason: Text


class QueueStats(Struct, frozen=True, kw_only=True):
    """Value of the register `queue/NAME`: what is in a queue now."""

    ready: Count = 0
    leased: Count = 0
    credit: Count = 0
    """Items that the connected takers would accept at once."""
    oldest_s: Seconds = 0.0
    """Seconds since the oldest unsettled item was given."""
    dead: Annotated[list[Name], Meta(max_length=1 << 16)] = []
    """Ids in the dead-letter queue of this queue."""


ToBroker = Hello | Take | Give | Watch | Ping | Bye
FromBroker = Welcome | Deliver | Done | Refused | Register | Pong | Stranger | Unwelcome

encoder = msgspec.msgpack.Encoder()
to_broker_decoder = msgspec.msgpack.Decoder(ToBroker)
from_broker_decoder = msgspec.msgpack.Decoder(FromBroker)


def sealed(message: ToBroker | FromBroker, frames: Sequence[bytes] = ()) -> list[bytes]:
    """The parts of a message as they are sent."""
    parts = [encoder.encode(message), *frames]
    return [*parts, checksum(parts)]


def unsealed(parts: Sequence[bytes]) -> list[bytes] | None:
    """Header and payload frames of what was received; None if it is not what was sent."""
    *content, check = parts or [b""]
    return content if check == checksum(content) else None


def checksum(parts: Sequence[bytes]) -> bytes:
    """Last part of a message, which tells damage from what was sent; no protection against intent."""
    value = 0
    for part in parts:
        value = crc32(part, value)
    return value.to_bytes(4, "little")
