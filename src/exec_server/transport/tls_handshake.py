"""The TLS handshake of a listener: a peer that is refused gets to know why.

The event loops close a connection as soon as its handshake fails, and the alert that OpenSSL has
made for the peer is lost. Here a failed handshake seems to wait for more data instead. So the loop
sends the alert. The owner of the handshake ends the connection a little later.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# The answer to a request that came without TLS.
_PLAIN_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 42\r\nConnection: close\r\n\r\nthis port needs TLS: use wss://, not ws://"
)
_HTTP_REASONS = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
_REASONS = {
    "HTTP_REQUEST": "the request came without TLS",
    "HTTPS_PROXY_REQUEST": "the request came without TLS",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}

# Called with the error of the handshake that the current task has begun.
on_failure: ContextVar[Callable[[ssl.SSLError], None] | None] = ContextVar(
    "on_failure", default=None
)


def is_about_certificate(error: ssl.SSLError) -> bool:
    """True if the peer has no certificate, or none that is accepted."""
    is_missing = error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    return is_missing or isinstance(error, ssl.SSLCertVerificationError)


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake has failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    name = error.reason or ""
    return _REASONS.get(name) or name.replace("_", " ").lower() or "unknown error"


class _TellingSslObject(ssl.SSLObject):
    """The TLS of one connection."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    on_failure: Callable[[ssl.SSLError], None] | None = None
    _has_failed = False

    def do_handshake(self) -> None:
        if self._has_failed:
            # Data that still comes is of no use, and must not pile up.
            self.incoming.read()
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as exc:
            if self.on_failure is None:
                raise
            self._has_failed = True
            if exc.reason in _HTTP_REASONS:
                self.outgoing.read()
                self.outgoing.write(_PLAIN_HTTP)
            self.on_failure(exc)
            raise ssl.SSLWantReadError from exc


class HandshakeContext(ssl.SSLContext):
    """The context of a listener. `on_failure`, if set, hears of failed handshakes."""

    sslobject_class = _TellingSslObject

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any
    ) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _TellingSslObject)
        made.incoming, made.outgoing = incoming, outgoing
        made.on_failure = on_failure.get()
        return made
