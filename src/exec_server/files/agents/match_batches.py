"""Collects matches, and prints them in batches."""

from __future__ import annotations

import os
import time

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.file_search import FileHits, SearchEnd

_MOST_MATCHES = 256
_MOST_BYTES = 128 * 1024
# How long a match may wait for others.
_SECONDS = 0.05
# The part of a long line that is shown.
TEXT_CHARS = 4096


_encode = msgspec.json.Encoder().encode


class AgentFound(msgspec.Struct):
    """A line that an agent prints; the last one has *end*."""

    found: list[FileHits]
    end: SearchEnd | UnsetType = UNSET


class Enough(Exception):
    """As many matches as were asked for were found."""


class MatchBatches:
    """Prints what is found; raises Enough after *most* matches."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0
        self._waiting: list[FileHits] = []
        # The hits that wait, and the size of their texts.
        self._hits = 0
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
        file = self._waiting[-1] if self._waiting else None
        if file is None or file.path != path:
            file = FileHits(path, [], [], [], [])
            self._waiting.append(file)
            self._bytes += len(path)
        if is_context:
            file.context.append(len(file.texts))
        if line is not None:
            file.lines.append(line)
        file.texts.append(text[:TEXT_CHARS])
        file.ranges.append(tuple([each for each in ranges if each[1] <= TEXT_CHARS]))
        self._added(1, len(text))

    def add_file(self, found: FileHits) -> None:
        """Add hits of a file that are as they have to be."""
        room = self._most - self.count
        is_enough = found.match_count > room
        if is_enough:
            found = found.first(room)
        self.count += found.match_count
        self._waiting.append(found)
        self._added(len(found.texts), sum(map(len, found.texts)) + len(found.path))
        if is_enough:
            raise Enough

    def _added(self, hits: int, size: int) -> None:
        self._hits += hits
        self._bytes += size
        if self._hits >= _MOST_MATCHES or self._bytes >= _MOST_BYTES:
            self.flush()
        else:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Print what has waited long enough."""
        if self._waiting and time.monotonic() - self._since >= _SECONDS:
            self.flush()

    def flush(self, end: SearchEnd | None = None) -> None:
        if end is not None:
            end.matches = self.count
        if self._waiting or end is not None:
            _write_line(_encode(AgentFound(self._waiting, UNSET if end is None else end)))
        self._waiting, self._hits, self._bytes = [], 0, 0
        self._since = time.monotonic()


def _write_line(data: bytes) -> None:
    view = memoryview(data + b"\n")
    while view:
        view = view[os.write(1, view) :]
