"""What a rollout and the weight server say to each other: manifests, and pieces of what the manifests describe.

    session  = *( Describe ( Described / Absent ) / Fetch ( Chunk / Absent ) )

Any question may be asked again, in any order: the server remembers nothing of a client but the questions it has not
answered yet. The client's credit is the number of chunks it has asked for; after a broken connection it asks again for
those that did not come, so a transfer resumes at the last chunk.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from common.protocol import Text
from common.weights import Version

CHUNK = 4 << 20
"""Bytes of a chunk at most: ZeroMQ is fastest with frames of 1 to 4 MiB."""
MAX_QUESTIONS = 64
"""Of one client that wait for an answer; more are refused."""
Offset = Annotated[int, Meta(ge=0, le=2**48)]


class Describe(Struct, frozen=True, kw_only=True, tag=True):
    """Rollout -> server: the manifest of a version."""

    version: Version


class Fetch(Struct, frozen=True, kw_only=True, tag=True):
    """Rollout -> server: bytes of the tensors of a full version, or of the blocks of a delta."""

    version: Version
    offset: Offset
    length: Annotated[int, Meta(ge=1, le=CHUNK)]


class Described(Struct, frozen=True, kw_only=True, tag=True):
    """Server -> rollout: the manifest is the frame behind it."""

    version: Version


class Chunk(Struct, frozen=True, kw_only=True, tag=True):
    """Server -> rollout: the bytes are the frame behind it."""

    version: Version
    offset: Offset


class Absent(Struct, frozen=True, kw_only=True, tag=True):
    """Server -> rollout: this version is not here, or no longer, or not that long."""

    version: Version
    reason: Text


ToServer = Describe | Fetch
FromServer = Described | Chunk | Absent

encoder = msgspec.msgpack.Encoder()
to_server_decoder = msgspec.msgpack.Decoder(ToServer)
from_server_decoder = msgspec.msgpack.Decoder(FromServer)
