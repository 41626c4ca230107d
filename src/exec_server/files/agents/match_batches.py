"""Collects matches, and prints them in batches."""

from __future__ import annotations

import json
import os
import time
from typing import Any

_MOST_MATCHES = 256
_MOST_BYTES = 128 * 1024
# How long a match may wait for others.
_SECONDS = 0.05
# The part of a long line that is shown.
TEXT_CHARS = 4096


class Enough(Exception):
    """As many matches as were asked for were found."""


class MatchBatches:
    """Prints what is found; raises Enough after *most* matches."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0
        self._waiting: list[dict[str, Any]] = []
        self._bytes = 0
        self._since = time.monotonic()

    def add(
        self,
        path: str,
        *,
        line: int | None,
        text: str,
        ranges: list[tuple[int, int]],
        is_context: bool = False,
    ) -> None:
        if not is_context:
            if self.count >= self._most:
                raise Enough
            self.count += 1
        found: dict[str, Any] = {"path": path, "text": text[:TEXT_CHARS]}
        if line is not None:
            found["line"] = line
        if ranges:
            found["ranges"] = [each for each in ranges if each[1] <= TEXT_CHARS]
        if is_context:
            found["isContext"] = True
        self._waiting.append(found)
        self._bytes += len(path) + len(found["text"])
        if len(self._waiting) >= _MOST_MATCHES or self._bytes >= _MOST_BYTES:
            self.flush()
        else:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Print what has waited long enough."""
        if self._waiting and time.monotonic() - self._since >= _SECONDS:
            self.flush()

    def flush(self, end: dict[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"matches": self._waiting}
        if end is not None:
            message["end"] = {**end, "matches": self.count}
        if self._waiting or end is not None:
            _write_line(json.dumps(message).encode())
        self._waiting, self._bytes, self._since = [], 0, time.monotonic()


def _write_line(data: bytes) -> None:
    view = memoryview(data + b"\n")
    while view:
        view = view[os.write(1, view) :]
