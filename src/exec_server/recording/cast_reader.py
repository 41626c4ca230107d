"""Reads a recording; one that was cut in its last line, or still grows, is read up to there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.recording.cast_format import (
    CastError,
    CastEvent,
    CastHeader,
    decode_event,
    decode_header,
)

# The longest line that is read: our own are shorter than a page, those of others are not.
_LONGEST_LINE = 64 << 20


class CastPlace(NamedTuple):
    """Where reading can go on: the offset of a line, and the time of the event before."""

    offset: int
    time: float


class CastReader:
    """One recording. It holds no file open between calls."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises CastError if it is not a recording, OSError if it cannot be read."""
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            line = file.readline(_LONGEST_LINE)
            self.start = CastPlace(len(line), 0.0)
        self.header: CastHeader = decode_header(line)

    def events(self, start: CastPlace | None = None) -> Iterator[tuple[CastEvent, CastPlace]]:
        """The events from *start* on with their times since the beginning, each with its end.

        Raises CastError for a line that is no event, unless it is the last one and has no end.
        """
        offset, time = start or self.start
        is_relative = self.header.version == 3
        with open(self.path, "rb") as file:
            file.seek(offset)
            while line := file.readline(_LONGEST_LINE):
                offset += len(line)
                try:
                    event = decode_event(line)
                except CastError:
                    if line.endswith(b"\n"):
                        raise
                    return
                if event is not None:
                    # Times never go back, whatever a file says.
                    time = time + event.time if is_relative else max(time, event.time)
                    yield event._replace(time=time), CastPlace(offset, time)

    def duration(self) -> float:
        """The time of the last event; the last part of the file tells it in v2."""
        if self.header.version == 2:
            return self._last_time()
        time = 0.0
        for event, _ in self.events():
            time = event.time
        return time

    def _last_time(self) -> float:
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self.start.offset, size - (64 << 10)))
            lines = file.read().split(b"\n")[:-1]
        for line in reversed(lines):
            try:
                if (event := decode_event(line)) is not None:
                    return event.time
            except CastError:
                continue
        return 0.0
