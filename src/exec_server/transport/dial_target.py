"""Where a `ws:`, `wss:` or `unix:` URL leads, and how a failure is described; no I/O."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import msgspec

from exec_server.errors import ConfigurationError

_UNIX = "unix://"
# OpenSSL's codes for a certificate that is signed by itself or by an unknown authority.
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
# TLS 1.3 and 1.2 name it differently.
_CERTIFICATE_WANTED = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")

# The peer has answered in another protocol. New versions of OpenSSL have the second name.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


class DialTarget(msgspec.Struct, frozen=True):
    """An address, and what the request for a WebSocket says there."""

    # The URL as errors show it: without credentials and query.
    shown: str
    # A host and port, or the path of a Unix socket.
    address: tuple[str, int] | str
    is_secure: bool
    host_header: str
    resource: str

    @property
    def is_unix(self) -> bool:
        return isinstance(self.address, str)

    def failure(self, cause: object) -> str:
        """Say that the connection failed, and why."""
        kind = "socket" if self.is_unix else "websocket"
        return f"failed to connect to exec-server {kind} `{self.shown}`: {cause}"


def parse_target(url: str) -> DialTarget:
    """Read a URL of a WebSocket. Raises ConfigurationError."""
    if url.startswith(_UNIX):
        path = url.removeprefix(_UNIX)
        if not path or "\0" in path:
            raise ConfigurationError(f"invalid URL `{url}`; expected `unix://PATH`")
        return DialTarget(url, path, False, "localhost", "/")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        scheme = _beginning(url.partition(":")[0])
        why = "its port is not a number from 0 to 65535" if "Port" in str(exc) else str(exc)
        raise ConfigurationError(f"invalid URL {scheme}: {why}") from None
    if parts.scheme not in ("ws", "wss") or not host:
        raise ConfigurationError(
            f"unsupported URL {_beginning(parts.scheme)}; expected `ws://HOST:PORT`, `wss://HOST`, "
            "`unix://PATH` or `stdio:PROGRAM`"
        )
    if "@" in parts.netloc:
        raise ConfigurationError("a URL cannot carry credentials; give a bearer token instead")
    if not (parts.path + parts.query).isascii() or any(c <= " " for c in url):
        raise ConfigurationError(f"invalid URL `{parts.scheme}://{parts.netloc}...`")
    is_secure = parts.scheme == "wss"
    resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
    address = (host, (443 if is_secure else 80) if port is None else port)
    return DialTarget(shown, address, is_secure, parts.netloc, resource)


def _beginning(scheme: str) -> str:
    # The rest may hold a secret.
    return f"`{scheme}:...`" if scheme else "without a scheme"


def describe(exc: Exception) -> str:
    """Return the cause of a failure in the words of the operating system, or of the library."""
    if isinstance(exc, OSError) and exc.strerror and not _is_tls(exc):
        # asyncio adds the address, which the URL already tells.
        return os.strerror(exc.errno) if exc.errno is not None and exc.errno > 0 else exc.strerror
    return (str(exc) or type(exc).__name__) + _tls_advice(exc)


def _tls_advice(exc: Exception) -> str:
    """The option that helps against a failed handshake, if there is one."""
    if getattr(exc, "verify_code", None) in _UNKNOWN_AUTHORITY:
        return "; name the authority of the server with --ca-file (ca_file)"
    if getattr(exc, "reason", None) in _CERTIFICATE_WANTED:
        return "; the server wants a certificate: use --client-cert (client_cert)"
    if getattr(exc, "reason", None) in _NO_TLS:
        return "; the port may be without TLS: use ws://"
    return ""


def _is_tls(exc: OSError) -> bool:
    return type(exc).__module__ == "ssl"
