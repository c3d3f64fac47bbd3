"""JSON to a network address and back, at most so many at a time and so long; a failure is a value.

    answer = await endpoint.post({...})        -> what the server replied, or Failed("status 500")

Awaited in the event loop of the reward service, not in its worker processes: such a verifier waits, it does not
compute; hundreds can wait in one thread, and a wait, unlike a computation, can be given up.

A redirect is not followed, so that the key stays with the address it is for. Proxies of the environment are not used.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx

MOST_BYTES = 1 << 20
"""Of a reply."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no reply."""

    cause: str
    """A few words of few kinds: they count errors."""


class Endpoint:
    """One address."""

    def __init__(self, url: str, *, key: str, timeout_s: float, max_concurrent: int) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=max_concurrent, max_keepalive_connections=max_concurrent)
        self._client = httpx.AsyncClient(headers=headers, timeout=None, limits=limits, trust_env=False)  # noqa: S113
        self._url = url
        self._timeout_s = timeout_s
        self._room = asyncio.Semaphore(max_concurrent)

    async def post(self, body: dict[str, Any]) -> Any | Failed:
        """The JSON that the server replies. Waits for room, then at most the time limit."""
        async with self._room:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._posted(body)
            except TimeoutError:
                return Failed("timeout")
            except httpx.HTTPError as error:
                return Failed(f"no connection ({type(error).__name__})")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _posted(self, body: dict[str, Any]) -> Any | Failed:
        async with self._client.stream("POST", self._url, json=body) as response:
            if response.status_code != httpx.codes.OK:
                return Failed(f"status {response.status_code}")
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    return Failed("reply too long")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return Failed("nonsense: the reply is no JSON")
