"""The screen at any moment of a recording."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator

from exec_server.recording.cast_format import MARK, CastEvent
from exec_server.recording.cast_reader import CastPlace, CastReader
from exec_server.recording.screen_text import show
from exec_server.recording.text_index import TextIndex
from exec_server.terminal import TerminalEngine, open_engine


class Playback:
    """Goes through a recording, forwards and backwards; its engine shows the screen."""

    def __init__(self, path: str | os.PathLike[str], index: TextIndex | None = None) -> None:
        """With an *index*, jumps are quick. Raises CastError, OSError or ImportError."""
        self.reader = CastReader(path)
        self._index = index
        # The time of the last event that is on the screen.
        self.time = 0.0
        # Where the events begin that are not on the screen.
        self.place = self.reader.start
        self._next_place = self.reader.start
        header = self.reader.header
        self.engine: TerminalEngine = open_engine(header.columns, header.rows)
        self._events = self._read(self.reader.start)
        self._next: CastEvent | None = next(self._events, None)

    def _go_to(self, columns: int, rows: int, dump: bytes, place: CastPlace) -> None:
        self.close()
        self.engine = open_engine(columns, rows)
        self.engine.feed(dump)
        self.time = place.time
        self.place = place
        self._events = self._read(place)
        self._next = next(self._events, None)

    def _read(self, place: CastPlace) -> Generator[CastEvent, None, None]:
        for event, after in self.reader.events(place):
            self._next_place = after
            yield event

    def close(self) -> None:
        self.engine.close()
        self._events.close()

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def upcoming(self) -> CastEvent | None:
        """The next event, which is not on the screen yet; None at the end."""
        return self._next

    def step(self) -> CastEvent | None:
        """Show the next event, and return it; None at the end."""
        event = self._next
        if event is None:
            return None
        show(self.engine, event)
        self.time = event.time
        self.place = self._next_place
        self._next = next(self._events, None)
        return event

    def seek(self, time: float, check: Callable[[], None] = lambda: None) -> None:
        """Show the screen as it was *time* seconds after the start.

        What *check* raises, which is called for each event, ends it.
        """
        found = self._index and self._index.keyframe(time)
        if found and (time < self.time or found[0].time > self.time):
            frame, dump = found
            self._go_to(frame.columns, frame.rows, dump, frame.place)
        elif time < self.time:
            header = self.reader.header
            self._go_to(header.columns, header.rows, b"", self.reader.start)
        while self._next is not None and self._next.time <= time:
            check()
            self.step()

    def marks(self) -> list[CastEvent]:
        """All marks of the recording."""
        return [event for event, _ in self.reader.events() if event.code == MARK]
