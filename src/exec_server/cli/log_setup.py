"""Logging to stderr: one event a line, as text or as JSON."""

from __future__ import annotations

import logging
import math
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, Literal

from exec_server.printable import escaped

logger = logging.getLogger(__name__)

Style = Literal["text", "json"]

# The errors that were printed.
_told: list[str] = []

# A notice of one kind is shown once in this time.
_NOTICE_SECONDS = 60.0


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger and message.

    A traceback and the ids of a trace are added if there are any. Every event is one line of valid
    JSON, even if its arguments are wrong.
    """

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        event = {
            "time": _moment(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **_trace(),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            event["stack"] = record.stack_info
        return msgspec.json.encode({name: _sound(text) for name, text in event.items()}).decode()


class TextFormatter(logging.Formatter):
    """One line per event: time, level, logger and message.

    Control characters are written as escapes. The lines of a traceback are indented. So a text that
    came from a peer can neither begin a line of its own nor act on a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        event = f"{self.formatTime(record)} {record.levelname} {record.name}: {_message(record)}"
        lines = [escaped(event)]
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _indented(record.stack_info)
        return "\n".join(lines)


class NoticeFilter(logging.Filter):
    """Passes events of *level* and above, and some notices for the operator below it.

    A notice is a warning with the attribute `notice`, which names its kind. At most one of a kind
    passes in a minute, so that a stranger cannot fill the log; the next one says how many did not.
    """

    def __init__(self, level: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.level = level
        self._clock = clock
        self._shown_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= self.level:
            return True
        kind = getattr(record, "notice", None)
        if kind is None:
            return False
        now = self._clock()
        if now - self._shown_at.get(kind, -math.inf) < _NOTICE_SECONDS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._shown_at[kind] = now
        if count := self._left_out.pop(kind, 0):
            record.msg, record.args = f"{_message(record)} ({count} more since the last line)", None
        return True


def configure(level: str, style: Style, *, shows_notices: bool = False) -> None:
    """Send this package's events of *level* and above to stderr, and notices if *shows_notices*."""
    handler = logging.StreamHandler(sys.stderr)
    lowest = logging.getLevelNamesMapping()[level.upper()]
    if shows_notices and lowest > logging.WARNING:
        handler.addFilter(NoticeFilter(lowest))
        lowest = logging.WARNING
    if style == "json":
        handler.setFormatter(JsonFormatter())
        _log_what_is_printed()
    else:
        handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(lowest)


def stderr_is_kept() -> bool:
    """True if stderr is a terminal, a file or a service's log, and not a pipe to a program.

    A program that starts a server may take every line on stderr for a failure. systemd names the
    socket of its journal in a variable. The first process of a container has a pipe to its log.
    """
    try:
        status = os.fstat(2)
    except OSError:
        return False
    is_journal = os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    return is_journal or os.isatty(2) or stat.S_ISREG(status.st_mode) or os.getpid() == 1


def set_level(level: str) -> None:
    """Change the level of a log that is configured. Notices appear as before."""
    root = logging.getLogger()
    lowest = logging.getLevelNamesMapping()[level.upper()]
    for filtering in (each for handler in root.handlers for each in handler.filters):
        if isinstance(filtering, NoticeFilter):
            filtering.level, lowest = lowest, min(lowest, logging.WARNING)
    root.setLevel(lowest)


def print_error(text: str) -> None:
    """Say on stderr why a command failed."""
    _told.append(_sound(text))
    print_note(f"Error: {text}")


def errors_told() -> list[str]:
    """The texts of all errors that this command has printed, for output in JSON."""
    return list(_told)


def print_warning(text: str) -> None:
    """Say on stderr that something is wrong, although the command goes on."""
    print_note(f"Warning: {text}")


def print_note(text: str) -> None:
    """Print lines on stderr. Texts of servers and registries in them cannot act on a terminal."""
    print(escaped(text, keep="\n\t"), file=sys.stderr, flush=True)


def report_failure(error: Exception, style: Style) -> None:
    """Say why a server ends: in a line for people, or as an event in a log of JSON."""
    if style == "json":
        logger.critical("%s", error)
    else:
        print_error(str(error))


def _moment(at: float) -> str:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return moment.removesuffix("+00:00") + "Z"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as exc:
        # The arguments do not fit to the format; the event is still logged.
        return f"{record.msg} ({exc})"


def _indented(text: str) -> list[str]:
    return [f"    {escaped(line)}" for line in text.split("\n")]


def _trace() -> dict[str, str]:
    """The ids of the current span if the program has loaded OpenTelemetry; it is not imported."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return {}
    span = api.get_current_span()
    if not span.is_recording():
        return {}
    context = span.get_span_context()
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def _sound(text: str) -> str:
    """Escape surrogates, which names of files may contain and JSON may not."""
    return text.encode("utf-8", "backslashreplace").decode()


def _log_what_is_printed() -> None:
    """Turn warnings and uncaught exceptions, which Python prints, into events."""
    import threading

    def uncaught(*exc_info: Any) -> None:
        logger.critical("the program failed", exc_info=exc_info)

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            exc_info: Any = (args.exc_type, args.exc_value, args.exc_traceback)
            logger.critical("a thread failed", exc_info=exc_info)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        exc_info: Any = (args.exc_type, args.exc_value, args.exc_traceback)
        logger.error("%s", args.err_msg or "an exception was ignored", exc_info=exc_info)

    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, in_thread, unraisable
