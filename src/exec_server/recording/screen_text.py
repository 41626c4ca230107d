"""Every text that was ever on the screen of a recording, with the time and the row.

The recording is fed to a terminal engine, and the screen is looked at after each pause of the
program, before it erases the screen, and before it leaves the alternate one. So text is found that
was never printed in one piece, and text that only an editor has shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from exec_server.recording.cast_format import OUTPUT, RESIZE, CastEvent
from exec_server.terminal import SCROLLBACK_ROWS, TerminalEngine, open_engine

# A shorter pause is not one; a screen that is shown for less cannot be read by people.
_PAUSE = 0.05
# The screen is looked at after this much output at least. The engine keeps more rows than these.
_MOST_ROWS = 300
_MOST_BYTES = 16 << 10
# Before these a screen is lost: ED of all of it, RIS, and the ends of the alternate screen.
_LOSING = re.compile(r"\x1b(?:\[2J|\[(?:1;1)?H\x1b\[0?J|c|\[\?(?:47|1047|1049)[lh])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)\Z")
_FORGET_HISTORY = b"\x1b[3J"


def show(engine: TerminalEngine, event: CastEvent) -> None:
    """Let an engine show an event."""
    if event.code == OUTPUT:
        engine.feed(event.data.encode("utf-8", "replace"))
    elif event.code == RESIZE and (size := event.size) is not None:
        engine.resize(*size)


class SeenText(NamedTuple):
    """A line of the screen, and when and where it was seen first."""

    time: float
    row: int
    text: str


class ScreenText:
    """Follows a recording. After each event the engine shows the screen of that moment."""

    def __init__(self, columns: int, rows: int) -> None:
        self.engine: TerminalEngine = open_engine(columns, rows)
        # What the primary and the alternate screen have shown at the last look, by their rows.
        self._shown: dict[bool, dict[int, str]] = {False: {}, True: {}}
        # What was fed since the last look, and when the last of it came.
        self._fresh_rows = 0
        self._fresh_bytes = 0
        self._time = 0.0
        self._tail = ""

    def close(self) -> None:
        self.engine.close()

    def feed(self, event: CastEvent) -> Iterator[SeenText]:
        """Take the next event; what was seen before it is yielded, so all must be taken."""
        if self._fresh_bytes and event.time - self._time >= _PAUSE:
            yield from self.look()
        self._time = event.time
        if event.code == OUTPUT:
            yield from self._output(event.data)
        elif event.code == RESIZE and (size := event.size) is not None:
            yield from self.look()
            self.engine.resize(*size)

    def look(self) -> Iterator[SeenText]:
        """The lines that are new since the last look."""
        if not self._fresh_bytes:
            return
        self._fresh_bytes = self._fresh_rows = 0
        is_alternate = self.engine.is_alternate
        known = set(self._shown[is_alternate].values())
        for text in self._scrolled():
            if text not in known:
                yield SeenText(self._time, 0, text)
        shown = dict(_joined(self.engine.text_rows()))
        for row, text in shown.items():
            if text not in known:
                yield SeenText(self._time, row, text)
        self._shown[is_alternate] = shown

    def _scrolled(self) -> list[str]:
        """The rows that have left the screen at its top; the engine then forgets them."""
        if self.engine.is_alternate or _UNFINISHED.search(self._tail) is not None:
            return []
        rows = [text.rstrip() for text in self.engine.history(SCROLLBACK_ROWS)]
        if rows:
            self.engine.feed(_FORGET_HISTORY)
        return [text for text in rows if text]

    def _output(self, text: str) -> Iterator[SeenText]:
        start = 0
        for found in _LOSING.finditer(text):
            yield from self._feed(text[start : found.start()])
            yield from self.look()
            start = found.start()
        yield from self._feed(text[start:])

    def _feed(self, text: str) -> Iterator[SeenText]:
        start = 0
        while start < len(text):
            # A long line fills many rows.
            most = min(len(text), start + min(_MOST_BYTES, _MOST_ROWS * self.engine.columns))
            end = _slice_end(text, start, most, _MOST_ROWS - self._fresh_rows)
            part = text[start:end]
            self.engine.feed(part.encode("utf-8", "replace"))
            self._tail = (self._tail + part)[-4096:]
            self._fresh_rows += part.count("\n") + len(part) // self.engine.columns
            self._fresh_bytes += len(part)
            if self._fresh_rows >= _MOST_ROWS or self._fresh_bytes >= _MOST_BYTES:
                yield from self.look()
            start = end


def _slice_end(text: str, start: int, most: int, rows: int) -> int:
    """The end of the next part: so many rows at most."""
    if text.count("\n", start, most) < rows:
        return most
    end = start
    for _ in range(rows):
        end = text.index("\n", end) + 1
    return end


def _joined(rows: list[tuple[str, bool]]) -> Iterator[tuple[int, str]]:
    """The lines that have text, with their first rows; a line may go over several rows."""
    parts: list[str] = []
    first = 0
    for number, (whole, is_wrapped) in enumerate(rows):
        if not parts:
            first = number
        parts.append(whole if is_wrapped else whole.rstrip())
        if not is_wrapped:
            if text := "".join(parts):
                yield first, text
            parts = []
    if text := "".join(parts).rstrip():
        yield first, text
