"""The URL of a NATS bus: its servers, and our user there."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from exec_server.errors import ConfigurationError

_PORT = 4222
_FORM = "nats://[user:password@|token@]host:port[,host:port...] or tls://..."


class NatsUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of one NATS cluster. The text form leaves the secrets out."""

    servers: tuple[str, ...]
    is_tls: bool
    user: str | None = None
    password: str | None = None
    token: str | None = None

    def __str__(self) -> str:
        return ", ".join(self.servers)

    def __repr__(self) -> str:
        return f"NatsUrl({self})"


def parse_nats_url(url: str) -> NatsUrl:
    """Raises ConfigurationError, which does not repeat *url*: it may hold a secret."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("nats", "tls"):
        raise ConfigurationError(f"the URL of a NATS bus is {_FORM}")
    # The text after the last @ has no secret.
    identity, at, hosts = rest.rstrip("/").rpartition("@")
    if "@" in identity:
        raise ConfigurationError("the URL of a NATS bus names the user once, for all its servers")
    servers = tuple(f"{scheme}://{_host_and_port(part)}" for part in hosts.split(","))
    user, colon, password = (unquote(part) for part in identity.partition(":"))
    if at and not user:
        raise ConfigurationError("the URL of a NATS bus has an @ and no user before it")
    if colon:
        return NatsUrl(servers=servers, is_tls=scheme == "tls", user=user, password=password)
    return NatsUrl(servers=servers, is_tls=scheme == "tls", token=user or None)


def _host_and_port(part: str) -> str:
    try:
        parts = urlsplit(f"//{part}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host, parts = None, SplitResult("", "", "", "", "")
    if not host or parts.netloc != part or any(character.isspace() for character in part):
        raise ConfigurationError(f"the URL of a NATS bus is {_FORM}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
