"""Logging to stderr: one event a line, as text or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Literal


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        event = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{record.msecs:03.0f}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(event).decode()


def configure(level: str, style: Literal["text", "json"]) -> None:
    """Send this package's events of *level* and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
