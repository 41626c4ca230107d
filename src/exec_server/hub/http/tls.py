"""The certificate of the registry, read again when its files change."""

from __future__ import annotations

import logging
import os
import ssl

from exec_server.errors import ConfigurationError

logger = logging.getLogger(__name__)


class Certificate:
    """A certificate with its key, and the TLS context of the sockets that use them."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raises ConfigurationError if the files cannot be read or do not belong together."""
        self._files = (certificate, key)
        try:
            self.context = _load(*self._files)
            self._seen = self._stamps()
        except (OSError, ValueError) as exc:
            raise ConfigurationError(f"cannot use the certificate {certificate}: {exc}") from exc

    def refresh(self) -> None:
        """Read the files again if they have changed.

        While they do not belong together, the previous certificate stays in use.
        """
        try:
            stamps = self._stamps()
            if stamps == self._seen:
                return
            # They are tried in another context first, because a failure halfway would leave this
            # one without a key.
            _load(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ValueError) as exc:
            logger.warning("the certificate was not read again: %s", exc)
            return
        self._seen = stamps
        logger.info("the certificate was read again")

    def _stamps(self) -> list[tuple[int, int, int]]:
        found = [os.stat(path) for path in self._files]
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]


def _load(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context
