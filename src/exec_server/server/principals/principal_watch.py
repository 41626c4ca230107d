"""Follows the file of principals: what others change in it, and who uses it."""

from __future__ import annotations

import asyncio
import logging
import time

from exec_server.access.principal_record import LastUse
from exec_server.access.principals_file import PrincipalsFile, Stamp
from exec_server.errors import ConfigurationError
from exec_server.server.live_access import LiveAccess
from exec_server.server.principals.known_principals import KnownPrincipals

logger = logging.getLogger(__name__)

# How long the clients of a server wait while another program changes the file.
_PATIENCE = 0.2


class PrincipalWatch:
    """Reads a file of principals again within *seconds* of a change, until it is closed.

    It also ends the connections of principals that expire, and notes the last uses in the file.
    """

    def __init__(self, file: PrincipalsFile, access: LiveAccess, *, seconds: float) -> None:
        self._file = PrincipalsFile(file.path, seconds=_PATIENCE)
        # For the thread that writes.
        self._patient_file = file
        self._access = access
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        # What was seen last; None after an error, which is told once.
        self._seen: Stamp | None = None
        self._is_broken = False
        self._expiry = access.next_expiry()
        self._uses: dict[str, LastUse] = {}
        self._noting: asyncio.Future[None] | None = None
        access.on_use = self._used
        self._timer = self._loop.call_later(seconds, self._look)

    def reload(self) -> None:
        """Read the file again. Raises ConfigurationError, and then the old principals stay."""
        stamp = self._file.stamp()
        self._access.replace_principals(KnownPrincipals(self._file.records()))
        self._seen, self._is_broken = stamp, False
        self._expiry = self._access.next_expiry()

    def close(self) -> None:
        self._timer.cancel()
        self._access.on_use = None
        if self._uses:
            _note(self._file, self._uses)

    def _look(self) -> None:
        # Whatever fails below, the next look comes.
        self._timer = self._loop.call_later(self._seconds, self._look)
        if self._expiry is not None and time.time() >= self._expiry:
            self._access.review("a principal has expired")
            self._expiry = self._access.next_expiry()
        try:
            if self._file.stamp() != self._seen:
                self.reload()
        except ConfigurationError as exc:
            if not self._is_broken:
                logger.error("the old principals stay in use: %s", exc)
            self._is_broken = True
        if self._uses and (self._noting is None or self._noting.done()):
            # A write waits for the disk.
            uses, self._uses = self._uses, {}
            self._noting = self._loop.run_in_executor(None, _note, self._patient_file, uses)

    def _used(self, name: str, source: str) -> None:
        self._uses[name] = LastUse(time.time(), source)


def _note(file: PrincipalsFile, uses: dict[str, LastUse]) -> None:
    try:
        file.note_uses(uses)
    except ConfigurationError as exc:
        logger.debug("the last uses were not noted: %s", exc)
