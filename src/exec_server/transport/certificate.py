"""The certificate of a listener, read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Sequence

from exec_server.errors import ConfigurationError
from exec_server.transport.certificate_facts import warn_of_end
from exec_server.transport.tls_handshake import HandshakeContext

logger = logging.getLogger(__name__)

_Stamps = tuple[tuple[int, int, int], ...]


class Certificate:
    """A certificate with its key, and the TLS context of the sockets that use them.

    With *client_ca* a client needs a certificate by one of the authorities in that file. A change
    of the files makes a new *context*, so it has to be asked for at each connection.
    """

    def __init__(self, certificate: str, key: str, *, client_ca: str | None = None) -> None:
        """Raises ConfigurationError if the files cannot be read or do not belong together."""
        self._certificate, self._key = certificate, key
        self.client_ca = client_ca
        # Called with the authorities of clients that are left, when one was removed.
        self.on_authority_removed: Callable[[Sequence[bytes]], None] | None = None
        try:
            self._seen = self._stamps()
            self.context: ssl.SSLContext = self._load()
            warn_of_end(certificate)
        except (OSError, ValueError) as exc:
            why = why_unusable(exc, certificate, key)
            raise ConfigurationError(f"cannot use the certificate {certificate}: {why}") from exc

    @property
    def files(self) -> tuple[str, ...]:
        authority = () if self.client_ca is None else (self.client_ca,)
        return (self._certificate, self._key, *authority)

    def refresh(self) -> None:
        """Read the files again if they have changed since the last time.

        While they do not belong together, the previous certificate stays in use.
        """
        try:
            stamps = self._stamps()
        except OSError as exc:
            if self._seen:
                logger.error("the certificate was not read again: %s", exc)
            self._seen = ()
            return
        if stamps != self._seen:
            self._seen = stamps
            self.reload()

    def reload(self) -> bool:
        """Read the files again. False means that they are broken and the old ones stay in use."""
        before = self.context
        try:
            self.context = self._load()
            warn_of_end(self._certificate)
        except (OSError, ValueError) as exc:
            self.context = before
            why = why_unusable(exc, self._certificate, self._key)
            logger.error("the certificate was not read again: %s", why)
            return False
        logger.info("the certificate was read again")
        left = self.context.get_ca_certs(binary_form=True)
        if set(before.get_ca_certs(binary_form=True)) - set(left):
            logger.info("an authority of clients was removed")
            if self.on_authority_removed is not None:
                self.on_authority_removed(left)
        return True

    def _stamps(self) -> _Stamps:
        found = [os.stat(path) for path in self.files]
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _load(self) -> ssl.SSLContext:
        context = HandshakeContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.load_cert_chain(self._certificate, self._key, _no_password)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as exc:
                raise ValueError(f"{self.client_ca} holds no certificates of authorities") from exc
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class CertificateWatch:
    """Reads a certificate again within *seconds* of a change of its files, until it is closed."""

    def __init__(self, certificate: Certificate, *, seconds: float) -> None:
        self._certificate = certificate
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._certificate.refresh()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def close(self) -> None:
        self._timer.cancel()


def why_unusable(exc: Exception, certificate: str, key: str | None) -> str:
    """Say which of the two files is the culprit, and why; without *key* both are one file."""
    key = key or certificate
    if isinstance(exc, ssl.SSLError):
        if exc.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {key} belongs to another certificate (key values mismatch)"
        # OpenSSL has no reason for a file that is not PEM, or that lacks its part.
        if not exc.reason:
            return f"it has to hold a certificate, and {key} has to hold its key, both as PEM"
        return str(exc)
    if isinstance(exc, OSError) and exc.strerror:
        files = (certificate, key)
        unreadable = next((path for path in files if not os.access(path, os.R_OK)), certificate)
        return f"{exc.filename or unreadable}: {exc.strerror}"
    return str(exc)


def _no_password() -> str:
    # Without this function OpenSSL would ask for the password on the terminal.
    raise ValueError("the key is encrypted: remove its password with `openssl pkey`")
