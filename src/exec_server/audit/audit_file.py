"""Appends events to an audit log: a chain of lines in a file that is rotated."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from exec_server.audit.chain import TORN, Link, end_of, linked, torn_detail
from exec_server.audit.disk_sync import DiskSync, SyncPolicy
from exec_server.audit.event import AuditEvent
from exec_server.audit.line_reserve import LineReserve
from exec_server.errors import ConfigurationError

logger = logging.getLogger(__name__)

WhenFull = Literal["refuse", "go-on"]

# Without O_NONBLOCK a FIFO in the place of the file would stop the whole program.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
# So much of the end of a file is searched for the last line of its chain.
_TAIL_BYTES = 1 << 20


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an audit log is kept."""

    # What becomes of requests while the log cannot be written.
    when_full: WhenFull = "go-on"
    fsync: SyncPolicy = "never"
    # A file of this size becomes FILE.1, and so on; None leaves this to other programs.
    max_bytes: int | None = None
    # How many older files are kept.
    keep: int = 8


class AuditLines:
    """An audit log. Its file may be renamed: if there is another one at its path, that is opened.

    The chain goes on from one file to the next, and from one server to the next. No other server
    can open the file meanwhile.
    """

    def __init__(
        self,
        path: str,
        options: AuditOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigurationError if the file cannot be written, or another server has it."""
        self.path = path
        self.options = options or AuditOptions()
        self.sync = DiskSync(self.options.fsync)
        # The number of lines that could not be written, and of requests that were refused for it.
        self.lost_total = 0
        self.refused_total = 0
        self.failures = 0
        self._clock = clock
        self._lost = 0
        self._refused = 0
        self._is_failing = False
        self._is_closed = False
        # True if there is another file at the path, which cannot be opened.
        self._is_left_behind = False
        # A line that was written only in part, and could not be removed.
        self._torn = b""
        try:
            self._open()
            self.end = self._last_link()
        except BlockingIOError:
            raise ConfigurationError(
                f"another server writes to the audit log {path}; each server needs its own file"
            ) from None
        except OSError as exc:
            raise ConfigurationError(f"cannot write the audit log {path}: {exc.strerror}") from exc
        self._end_torn_line()

    # Events.

    def write_event(self, event: AuditEvent) -> bool:
        """Append an event; False if that failed. Errors are logged when they begin."""
        if self._is_closed:
            return False
        self._follow()
        is_written = self._tell_lost() and self._append(event)
        if not is_written:
            self._lost += 1
            self.lost_total += 1
        return is_written

    def admits(self) -> bool:
        """False if a request has to be refused, because there would be no line about it."""
        if self.options.when_full == "go-on":
            return True
        self._follow()
        has_room = self._reserve.is_enough(self._descriptor, self._size)
        if self.sync.is_failing:
            # It is tried again, for the requests that follow.
            self.sync.wrote(self._descriptor)
        elif has_room and self._tell_lost() and self._tell_refused():
            return True
        if not self._refused:
            logger.error("the audit log %s cannot be written: requests are refused", self.path)
        self._refused += 1
        self.refused_total += 1
        return False

    def _tell_lost(self) -> bool:
        """Write what was lost since the last line; False if that cannot be written either."""
        if self._torn and not self._write_torn():
            return False
        if self._lost:
            lost = AuditEvent(at=self._clock(), name="events lost", detail=str(self._lost))
            if not self._append(lost):
                return False
            logger.error("%d events of the audit log were lost", self._lost)
            self._lost = 0
        return True

    def _tell_refused(self) -> bool:
        if self._refused:
            text = f"{self._refused} while the audit log could not be written"
            if not self._append(AuditEvent(at=self._clock(), name="requests refused", detail=text)):
                return False
            logger.error("the audit log can be written again; %d were refused", self._refused)
            self._refused = 0
        return True

    def _append(self, event: AuditEvent) -> bool:
        line, end = linked(_encoded(event), self.end)
        data = line + b"\n"
        limit = self.options.max_bytes
        if limit is not None and self._size and self._size + len(data) > limit:
            self._rotate()
        if not self._write(data):
            return False
        self.end = end
        self.sync.wrote(self._descriptor)
        return True

    def _write(self, data: bytes) -> bool:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:] if written else data)
        except OSError as exc:
            if written:
                self._remove_part(data[:written])
            self.failures += 1
            if not self._is_failing:
                logger.error("the audit log %s cannot be written: %s", self.path, exc.strerror)
            self._is_failing = True
            return False
        self._size += len(data)
        self._is_failing = False
        return True

    def _remove_part(self, part: bytes) -> None:
        try:
            # The size that we remember is wrong if another program has emptied the file.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - len(part))
        except OSError:
            self._torn = part
            self._size += len(part)

    def _write_torn(self) -> bool:
        """End a torn line, and say so in the next one."""
        torn = self._torn
        if not self._write(b"\n"):
            return False
        self._torn = b""
        return self._append(AuditEvent(at=self._clock(), name=TORN, detail=torn_detail(torn)))

    # Files.

    def reopen(self) -> None:
        """Open the file at the path, if it is another one; the old one stays if that fails.

        Raises OSError.
        """
        if self._is_current():
            return
        old = self._descriptor
        self._open()
        self.sync.finish(old)
        os.close(old)
        self._torn = b""

    def close(self) -> None:
        """Close the file; events that come later are not written."""
        self._is_closed = True
        self.sync.finish(self._descriptor)
        self.sync.close()
        os.close(self._descriptor)

    def _open(self) -> None:
        """Open and lock the file. Raises OSError, and then the open file stays as it was."""
        opened = os.open(self.path, _FLAGS, 0o600)
        try:
            found = os.fstat(opened)
            is_regular = stat.S_ISREG(found.st_mode)
            if is_regular:
                _lock(opened)
        except OSError:
            os.close(opened)
            raise
        self._descriptor = opened
        self._identity = found.st_dev, found.st_ino
        self._is_regular = is_regular
        self._size = found.st_size if is_regular else 0
        self._reserve = LineReserve()

    def _follow(self) -> None:
        """Open the file at the path, if it is another one. Until that succeeds, the old one stays.

        An error is logged when it begins.
        """
        try:
            self.reopen()
        except OSError as exc:
            if not self._is_left_behind:
                logger.error("the audit log cannot be opened again: %s", exc.strerror)
            self._is_left_behind = True
        else:
            self._is_left_behind = False

    def _is_current(self) -> bool:
        """True if the open file is still the one at the path."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return self._identity == (there.st_dev, there.st_ino)

    def _rotate(self) -> None:
        """Give the file the name FILE.1, those before it the next numbers, and begin a new one."""
        if not self._is_regular or self._is_left_behind:
            return
        try:
            for number in range(self.options.keep - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            os.rename(self.path, f"{self.path}.1")
            self.reopen()
        except OSError as exc:
            logger.error("the audit log %s cannot be rotated: %s", self.path, exc.strerror)

    # What an earlier server has left.

    def _last_link(self) -> Link:
        """The end of the chain in the file, or in the one before it; raises OSError."""
        if not self._is_regular:
            return Link()
        for path in (self.path, f"{self.path}.1"):
            try:
                lines, rest = _tail(path)
            except FileNotFoundError:
                continue
            if path == self.path:
                self._torn = rest
            found = next(filter(None, map(end_of, reversed([*lines, rest]))), None)
            if found is not None or lines:
                return found or Link()
        return Link()

    def _end_torn_line(self) -> None:
        if not self._torn:
            return
        if end_of(self._torn) is not None:
            # Only its newline is missing.
            self._torn = b""
            self._write(b"\n")
            return
        logger.warning("the last line of the audit log %s was cut; the next one says so", self.path)
        self._tell_lost()


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError if another program has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as exc:
        # Some network file systems have no locks.
        logger.warning("the audit log cannot be locked: %s", exc.strerror)


def _tail(path: str) -> tuple[list[bytes], bytes]:
    """The last lines of a file, and what follows the last newline."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        *lines, rest = file.read().split(b"\n")
    return lines, rest


def _encoded(event: AuditEvent) -> bytes:
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        # Names of files may have bytes that are no text.
        return msgspec.json.encode(_sound(msgspec.to_builtins(event)))


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _sound(each) for name, each in value.items()}
    return [_sound(each) for each in value] if isinstance(value, list) else value
