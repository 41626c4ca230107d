"""Plays a recording on this terminal, with keys to pause, step, jump and search."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator

import msgspec

from exec_server.cli.process.own_terminal.terminal_io import raw_terminal
from exec_server.cli.process.own_terminal.terminal_modes import TerminalModes
from exec_server.cli.process.own_terminal.terminal_queries import TerminalQueries
from exec_server.cli.recordings.harmless_output import HarmlessOutput
from exec_server.cli.recordings.player_keys import HELP, PlayerKeys
from exec_server.cli.recordings.recording_choice import shown_moment
from exec_server.recording.cast_format import MARK, OUTPUT
from exec_server.recording.playback import Playback
from exec_server.recording.screen_text import SeenText
from exec_server.recording.text_index import TextIndex

_JUMP = 5.0
_SPEEDS = (0.1, 64.0)
_STDIN, _STDOUT = 0, 1
_CLEAR = b"\x1b[0m\x1b[H\x1b[2J"


class PlayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording is played."""

    speed: float = 1.0
    idle_limit: float | None = None
    start: float = 0.0
    is_paused: bool = False
    # Stop at each mark.
    stops_at_marks: bool = False


class Player:
    """Writes a recording to standard output. The end of `play` restores the terminal."""

    def __init__(self, playback: Playback, index: TextIndex, options: PlayOptions) -> None:
        self._playback = playback
        self._index = index
        self._options = options
        self._speed = options.speed
        self._is_paused = options.is_paused
        self._modes = TerminalModes()
        self._queries = TerminalQueries()
        self._harmless = HarmlessOutput()
        self._has_line = False
        self._found: list[SeenText] = []
        self._pattern: re.Pattern[str] | None = None
        # When the last event was shown, by the clock of this machine.
        self._shown_at = time.monotonic()
        self._keys: PlayerKeys | None = None
        self._is_over = False
        self.is_interrupted = False
        self._actions: dict[str, Callable[[], None]] = {
            "pause": self._toggle,
            "step": self._step,
            "forward": lambda: self._jump(self._playback.time + _JUMP),
            "back": lambda: self._jump(self._playback.time - _JUMP),
            "start": lambda: self._jump(0.0),
            "end": lambda: self._jump(self._index.duration),
            "faster": lambda: self._change_speed(2.0),
            "slower": lambda: self._change_speed(0.5),
            "search": self._search,
            "next": lambda: self._next_found(1),
            "previous": lambda: self._next_found(-1),
            "next mark": lambda: self._next_mark(1),
            "previous mark": lambda: self._next_mark(-1),
            "help": self._help,
            "quit": self._quit,
            "interrupt": self._interrupt,
        }

    def play(self) -> None:
        """Play to the end, or until a key ends it."""
        with self._terminal():
            if self._options.start or self._is_paused:
                self._jump(self._options.start)
            while not self._is_over:
                self._turn()

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            held.callback(self._restore)
            if os.isatty(_STDIN):
                held.enter_context(raw_terminal(_STDIN))
                self._keys = PlayerKeys(_STDIN)
            yield

    def _restore(self) -> None:
        self._erase_line()
        self._write(self._modes.leave() + b"\x1b[0m\r\n")

    def _turn(self) -> None:
        """Wait for the next event or a key, and do what it asks for."""
        upcoming = self._playback.upcoming
        if upcoming is None and not self._is_paused:
            self._is_over = True
            return
        wait = None if self._is_paused or upcoming is None else self._pause_before(upcoming.time)
        if self._keys is None:
            time.sleep(wait or 0)
            key = None
            self._is_paused = False
        else:
            key = self._keys.wait(wait)
        if key is not None:
            self._obey(PlayerKeys.name(key))
        elif not self._is_paused or (self._keys is not None and self._keys.is_ended):
            self._is_paused = False
            self._show_next()

    def _pause_before(self, moment: float) -> float:
        pause = moment - self._playback.time
        limits = (self._options.idle_limit, self._playback.reader.header.idle_limit)
        limit = next((each for each in limits if each is not None), None)
        pause = pause if limit is None else min(pause, limit)
        return max(0.0, self._shown_at + pause / self._speed - time.monotonic())

    def _show_next(self) -> None:
        event = self._playback.step()
        self._shown_at = time.monotonic()
        if event is None:
            return
        if event.code == OUTPUT:
            self._show(event.data.encode("utf-8", "replace"))
        elif event.code == MARK and self._options.stops_at_marks:
            self._is_paused = True
            self._timeline(event.data)

    def _show(self, data: bytes) -> None:
        data = self._harmless.feed(data)
        self._modes.feed(data)
        self._write(self._queries.remove(data))

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(_STDOUT, data) :]

    # Keys.

    def _obey(self, name: str) -> None:
        if name in self._actions:
            self._actions[name]()
        elif len(name) == 1 and name in "0123456789":
            self._jump(self._index.duration * int(name) / 10)

    def _toggle(self) -> None:
        self._is_paused = not self._is_paused
        self._shown_at = time.monotonic()
        if self._is_paused:
            self._timeline()
        else:
            self._repaint()

    def _step(self) -> None:
        """Show the next output, and wait."""
        self._is_paused = True
        self._erase_line()
        while (upcoming := self._playback.upcoming) is not None:
            self._show_next()
            if upcoming.code == OUTPUT:
                break
        self._timeline()

    def _jump(self, moment: float, note: str = "") -> None:
        self._playback.seek(max(0.0, min(moment, self._index.duration)))
        self._shown_at = time.monotonic()
        self._repaint()
        if self._is_paused or note:
            self._timeline(note)

    def _change_speed(self, factor: float) -> None:
        self._speed = min(max(self._speed * factor, _SPEEDS[0]), _SPEEDS[1])
        if self._is_paused:
            self._timeline()

    def _help(self) -> None:
        self._is_paused = True
        self._status_line(HELP)

    def _quit(self) -> None:
        self._is_over = True

    def _interrupt(self) -> None:
        self._is_over = self.is_interrupted = True

    def _next_mark(self, direction: int) -> None:
        now = self._playback.time
        marks = [mark for mark in self._playback.marks() if (mark.time - now) * direction > 1e-6]
        self._is_paused = True
        if marks:
            mark = marks[0] if direction > 0 else marks[-1]
            self._jump(mark.time, mark.data)
        else:
            self._timeline("there are no more marks")

    # Search.

    def _search(self) -> None:
        self._is_paused = True
        typed = ""
        while self._keys is not None:
            self._status_line(f"/{typed}")
            key = self._keys.wait(None)
            if key in ("\r", "\n"):
                break
            if key is None or key in ("\x03", "\x1b"):
                self._timeline()
                return
            typed = typed[:-1] if key in ("\x7f", "\b") else typed + (key if key >= " " else "")
        try:
            self._pattern = re.compile(typed) if typed else self._pattern
        except re.error as exc:
            self._timeline(f"this is no regular expression: {exc}")
            return
        self._found = list(self._index.find(self._pattern)) if self._pattern else []
        self._next_found(1, is_new=True)

    def _next_found(self, direction: int, *, is_new: bool = False) -> None:
        now = self._playback.time
        self._is_paused = True
        found = [
            (number, seen)
            for number, seen in enumerate(self._found, 1)
            if (seen.time - now) * direction > (-0.001 if is_new else 0.001)
        ]
        if not found and is_new and self._found:
            # Search goes on from the start.
            found = list(enumerate(self._found, 1))
        if not found:
            self._timeline("not found" if not self._found else "no more matches")
            return
        number, seen = found[0] if direction > 0 else found[-1]
        # Times of lines are rounded down to milliseconds.
        self._jump(seen.time + 0.001, f"match {number} of {len(self._found)}, row {seen.row + 1}")

    # The line at the bottom.

    def _timeline(self, note: str = "") -> None:
        now, end = self._playback.time, max(self._index.duration, 1e-6)
        times = f"{shown_moment(now)} / {shown_moment(end)}  {self._speed:g}x"
        state = "paused" if self._is_paused else "plays"
        words = f" {state}  {times}  {note}  (? help) "
        room = max(0, min(40, self._columns() - len(words) - 2))
        done = min(room, round(room * min(1.0, now / end)))
        self._status_line(f"[{'=' * done}{'-' * (room - done)}]{words}" if room > 5 else words)

    def _columns(self) -> int:
        return self._local_size()[0]

    def _local_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(_STDOUT)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def _status_line(self, text: str) -> None:
        columns, rows = self._local_size()
        clean = re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", text)[: columns - 1]
        line = f"\x1b7\x1b[{rows};1H\x1b[0;7m{clean}\x1b[0m\x1b[K\x1b8"
        self._write(line.encode("utf-8", "replace"))
        self._has_line = True

    def _erase_line(self) -> None:
        if self._has_line:
            self._repaint()

    def _repaint(self) -> None:
        """Paint the screen of the moment; this removes the line at the bottom."""
        self._has_line = False
        self._write(self._modes.leave() + _CLEAR)
        self._modes = TerminalModes()
        self._queries = TerminalQueries()
        self._harmless = HarmlessOutput()
        self._show(self._playback.engine.dump())
