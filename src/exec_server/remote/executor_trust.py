"""Which keys a harness accepts from an executor, whatever the registry says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from exec_server.errors import ConfigurationError, UntrustedExecutor
from exec_server.remote.known_executors import Known, KnownExecutors
from exec_server.remote.state_dir import state_home

# The pin that accepts the first key, and only that key from then on.
FIRST_USE = "first-use"
PIN_VARIABLE = "EXEC_SERVER_PIN"
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def check_pin(text: str) -> str:
    """Return *text* without surrounding blanks. Raises ConfigurationError if it is not a pin."""
    pin = text.strip()
    if pin != FIRST_USE and not _FINGERPRINT.fullmatch(pin):
        raise ConfigurationError(
            f"invalid pin `{text}`; expected `SHA256:...`, as `exec-server fingerprint` prints it, "
            f"or `{FIRST_USE}`"
        )
    return pin


class Trust:
    """The keys that a harness accepts for the executor of an environment.

    If *pin* is a fingerprint, only that key is accepted. Otherwise only the key in the file of
    known executors is. If the file has none, every key is accepted, and `first-use` stores it.
    """

    def __init__(
        self,
        registry_url: str,
        environment_id: str,
        *,
        pin: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Without *pin*, EXEC_SERVER_PIN is used. Raises ConfigurationError if it is not a pin."""
        pin = pin or environ.get(PIN_VARIABLE) or None
        self._registry_url = registry_url
        self._environment_id = environment_id
        self._pin = None if pin is None else check_pin(pin)
        self._known = KnownExecutors(state_home(environ) / "known_executors")

    def check(self, fingerprint: str) -> None:
        """Raise UntrustedExecutor unless the key is accepted."""
        if self._pin in (None, FIRST_USE):
            known = self.known
            if known is not None and known.fingerprint != fingerprint:
                raise self._changed(known, fingerprint)
        elif self._pin != fingerprint:
            raise UntrustedExecutor(
                f"THE EXECUTOR OF `{self._environment_id}` DOES NOT HAVE THE PINNED KEY, and "
                f"nothing was sent to it. Another machine may be pretending to be it. The pinned "
                f"key is {self._pin}; the registry {self._registry_url} names {fingerprint}."
            )

    def remember(self, fingerprint: str) -> None:
        """Store the key after its holder has answered.

        Raises UntrustedExecutor if another program has stored another key meanwhile.
        """
        if self._pin == FIRST_USE and self.known is None:
            known = self._known.add(self._registry_url, self._environment_id, fingerprint)
            if known.fingerprint != fingerprint:
                raise self._changed(known, fingerprint)

    @property
    def known(self) -> Known | None:
        """The entry of this environment in the file, if any."""
        return self._known.find(self._registry_url, self._environment_id)

    def _changed(self, known: Known, fingerprint: str) -> UntrustedExecutor:
        where = f"line {known.line} of {known.path}"
        return UntrustedExecutor(
            f"THE KEY OF `{self._environment_id}` HAS CHANGED, and nothing was sent to it. "
            f"Another machine may be pretending to be this executor, to read your commands and "
            f"files and to forge the answers; the registry {self._registry_url} may take part in "
            f"it. Or the executor was given a new identity. The known key, from {where}, is "
            f"{known.fingerprint}; the registry now names {fingerprint}. Ask the operator of the "
            f"executor what `exec-server fingerprint FILE` prints there. Only if it is the new "
            f"key, delete {where} and connect again."
        )
