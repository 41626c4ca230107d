"""Which key an executor may have, whatever the registry says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from exec_server.errors import ConfigurationError, UntrustedExecutor
from exec_server.remote.known_executors import Known, KnownExecutors
from exec_server.remote.state_dir import state_home

# The pin that stands for whatever key is seen first.
FIRST_USE = "first-use"
PIN_VARIABLE = "EXEC_SERVER_PIN"
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def check_pin(text: str) -> str:
    """*text* without blanks around it; ConfigurationError when it can be no pin."""
    pin = text.strip()
    if pin != FIRST_USE and not _FINGERPRINT.fullmatch(pin):
        raise ConfigurationError(
            f"invalid pin `{text}`; expected `SHA256:...`, as `exec-server fingerprint` prints it, "
            f"or `{FIRST_USE}`"
        )
    return pin


class Trust:
    """Whom a harness takes for the executor of an environment.

    A fingerprint as *pin* is the only good one. Otherwise it is the one that the file of known
    executors has; where that has none every key is good, and remembered with `first-use`.
    """

    def __init__(
        self,
        registry_url: str,
        environment_id: str,
        *,
        pin: str | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Without *pin* the variable's counts. Raises ConfigurationError for what is none."""
        pin = pin or environ.get(PIN_VARIABLE) or None
        self._registry_url = registry_url
        self._environment_id = environment_id
        self._pin = None if pin is None else check_pin(pin)
        self._known = KnownExecutors(state_home(environ) / "known_executors")

    def check(self, fingerprint: str) -> None:
        """Raises UntrustedExecutor unless the key is good, or the first one."""
        if self._pin in (None, FIRST_USE):
            known = self.known
            if known is not None and known.fingerprint != fingerprint:
                raise self._changed(known, fingerprint)
        elif self._pin != fingerprint:
            raise UntrustedExecutor(
                f"THE EXECUTOR OF `{self._environment_id}` DOES NOT HAVE THE PINNED KEY, and "
                f"nothing was sent to it. Somebody may be pretending to be it. Pinned is "
                f"{self._pin}, the registry {self._registry_url} names {fingerprint}."
            )

    def remember(self, fingerprint: str) -> None:
        """The holder of the key was reached. Raises UntrustedExecutor when another was quicker."""
        if self._pin == FIRST_USE and self.known is None:
            known = self._known.add(self._registry_url, self._environment_id, fingerprint)
            if known.fingerprint != fingerprint:
                raise self._changed(known, fingerprint)

    @property
    def known(self) -> Known | None:
        """What the file says."""
        return self._known.find(self._registry_url, self._environment_id)

    def _changed(self, known: Known, fingerprint: str) -> UntrustedExecutor:
        where = f"line {known.line} of {known.path}"
        return UntrustedExecutor(
            f"THE KEY OF `{self._environment_id}` HAS CHANGED, and nothing was sent to it. "
            f"Somebody may be pretending to be this executor, to read your commands and files and "
            f"to answer them as they like; the registry {self._registry_url} may be in on it. Or "
            f"the executor was given a new identity. Known, from {where}, is {known.fingerprint}; "
            f"the registry now names {fingerprint}. Ask whoever runs the executor what "
            f"`exec-server fingerprint FILE` says there. Only if it is the new one, delete {where} "
            f"and connect again."
        )
