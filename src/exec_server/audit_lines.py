"""Audit events of registries and executors, and the file that has a line of JSON for each."""

from __future__ import annotations

import logging
import os

import msgspec

from exec_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Without O_NONBLOCK a FIFO in the place of the file would stop the whole program.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An audit event: who did what, when and from where. It never has relayed content."""

    at: float
    name: str
    principal: str = ""
    token_id: str = ""
    environment_id: str = ""
    address: str = ""
    detail: str = ""


class AuditLines:
    """An audit log that may be rotated: if the file at its path is another one, that is opened."""

    def __init__(self, path: str) -> None:
        """Raises ConfigurationError if the file cannot be written."""
        self._path = path
        self._is_failing = False
        # True if there is another file at the path, which cannot be opened.
        self._is_left_behind = False
        # True if a line was written only in part, so that the next one needs a new line.
        self._is_torn = False
        try:
            self._descriptor = os.open(path, _FLAGS, 0o600)
        except OSError as exc:
            raise ConfigurationError(f"cannot write the audit log {path}: {exc.strerror}") from exc

    def write_event(self, event: AuditEvent) -> None:
        """Append an event. Errors are logged when they begin, and never raised."""
        self.write(msgspec.json.encode(event))

    def write(self, line: bytes) -> None:
        """Append a line. Errors are logged when they begin, and never raised."""
        self._follow()
        try:
            data = (b"\n" if self._is_torn else b"") + line + b"\n"
            written = os.write(self._descriptor, data)
            self._is_torn = written < len(data)
            if self._is_torn:
                raise OSError(0, "only a part of a line could be written")
        except OSError as exc:
            if not self._is_failing:
                logger.error("the audit log cannot be written: %s", exc.strerror)
            self._is_failing = True
        else:
            self._is_failing = False

    def _follow(self) -> None:
        """Open the file at the path, if it is another one. Until that succeeds, the old one stays.

        An error is logged when it begins.
        """
        try:
            if not self._is_current():
                self.reopen()
        except OSError as exc:
            if not self._is_left_behind:
                logger.error("the audit log cannot be opened again: %s", exc.strerror)
            self._is_left_behind = True
        else:
            self._is_left_behind = False

    def reopen(self) -> None:
        """Open the file at the path again. If that fails, the old file stays. Raises OSError."""
        opened = os.open(self._path, _FLAGS, 0o600)
        os.close(self._descriptor)
        self._descriptor, self._is_torn = opened, False

    def close(self) -> None:
        os.close(self._descriptor)

    def _is_current(self) -> bool:
        """True if the open file is still the one at the path."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        here = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
