"""Tables [reward.judge] and [reward.http]."""

import ipaddress
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct


class RemoteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every remote verifier has."""

    url: str
    """Address; for `judge` that of an OpenAI-compatible API, up to and with `/v1`."""
    key_file: str = ""
    """File that holds the API key and nothing else; sent as a bearer token, never logged."""
    timeout_s: float = 60.0
    """Longest wait for one reply."""
    max_concurrent: int = 16
    """Requests at a time."""
    allow_plain_key: bool = False
    """Whether the key may go over plain http to another machine."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, or that would show the key to others."""
        if self.timeout_s <= 0:
            raise ValueError("`timeout_s` must be above 0")
        if self.max_concurrent < 1:
            raise ValueError("`max_concurrent` must be at least 1")
        try:
            parts = urlsplit(self.url)
        except ValueError as error:
            raise ValueError(f"`url` cannot be read: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("`url` must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise ValueError("`url` must not hold a password: write the key into a file and name it in `key_file`")
        if self.key_file and parts.scheme == "http" and not _is_here(parts) and not self.allow_plain_key:
            raise ValueError(
                "`url` is plain http to another machine, so anybody on the way could read the key: use https, or set "
                "allow_plain_key = true"
            )


class JudgeConfig(RemoteConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI-compatible model that judges."""

    model: str
    """Its name at that address."""
    template: str
    """File of the question put to it; {question}, {gold} and {output} are replaced."""
    lowest: float = 0.0
    """Worst score it may give."""
    highest: float = 10.0
    """Best score."""
    temperature: float = 0.0
    """Of its sampling."""
    max_tokens: int = 1024
    """Longest reply."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        super().__post_init__()
        if not self.lowest < self.highest:
            raise ValueError("`lowest` must be below `highest`")
        if self.max_tokens < 1 or self.temperature < 0:
            raise ValueError("`max_tokens` must be at least 1 and `temperature` 0 or more")


class HttpConfig(RemoteConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server that is sent an output and answers with its score."""


def _is_here(parts: SplitResult) -> bool:
    """Whether the host is this machine."""
    host = parts.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
