"""What the marks of a shell say of its last command."""

from __future__ import annotations

import re
from typing import Any

from exec_server.protocol.screen import LastCommand
from exec_server.screens.command_marks import Mark, command_of, exit_code_of, is_continuation
from exec_server.terminal import TerminalEngine

# The newest so many rows of a command's output are told.
_MAX_ROWS = 2000
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])"
)
_BEGINNING = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[ -/]*)\Z")


class CommandTracker:
    """Follows the marks of one terminal."""

    def __init__(self, engine: TerminalEngine) -> None:
        self._engine = engine
        # The number of prompts so far, and the version at which the last one was complete.
        self.prompts = 0
        self.prompt_version = 0
        # True while the shell waits for a command.
        self.is_at_prompt = False
        # True once the shell has marked anything.
        self.has_marks = False
        self._sends_b = False
        self._cwd: str | None = None
        # What came at the prompt since its mark: a newline, text after it, and the beginning of a
        # sequence.
        self._has_newline = self._has_printed = False
        self._cut = b""
        # The row at which typing began, and the one at which the output began.
        self._typed: Any = None
        self._start: Any = None
        self._last = LastCommand("none")

    @property
    def is_unconfirmed(self) -> bool:
        """True if something was entered at the prompt, and the shell did not mark it."""
        return self.is_at_prompt and self._has_printed

    def printed(self, data: bytes) -> None:
        """Output that is no mark."""
        if not self.is_at_prompt or self._has_printed:
            return
        if not self._has_newline:
            _, newline, data = data.partition(b"\n")
            self._has_newline = bool(newline)
        data = _SEQUENCE.sub(b"", self._cut + data)
        beginning = _BEGINNING.search(data)
        self._cut = beginning[0] if beginning else b""
        # The newline itself comes before the mark of the command.
        self._has_printed = bool(data[: len(data) - len(self._cut)].strip())

    def marked(self, mark: Mark, version: int) -> None:
        """A mark; the engine has taken everything up to it."""
        if mark.kind == "cwd":
            self._cwd = mark.value or None
            return
        self.has_marks = True
        self._has_newline = self._has_printed = False
        self._cut = b""
        if mark.kind == "A" and not is_continuation(mark.value):
            self.is_at_prompt = False
            if not self._sends_b:
                self._at_prompt(version)
        elif mark.kind == "B":
            self._sends_b = True
            self._at_prompt(version)
            if self._typed is None:
                self._typed = self._engine.mark(self._engine.cursor.row)
        elif mark.kind == "C":
            self._begin(mark)
        elif mark.kind == "D":
            self._end(mark)

    def _at_prompt(self, version: int) -> None:
        self.is_at_prompt = True
        self.prompts += 1
        self.prompt_version = version

    def _begin(self, mark: Mark) -> None:
        self.is_at_prompt = False
        command = command_of(mark.value) or self._typed_command()
        self._last = LastCommand("running", command, self._cwd)
        self._forget()
        self._start = self._engine.mark(self._engine.cursor.row)

    def _end(self, mark: Mark) -> None:
        if self._last.state != "running":
            return
        output, is_cut = self._output()
        self._last = LastCommand(
            "done",
            self._last.command,
            self._last.cwd,
            exit_code_of(mark.value),
            output,
            is_cut,
        )
        self._forget()

    def last(self) -> LastCommand:
        """The last command, with its output so far if it still runs."""
        if self.is_unconfirmed or (self.is_at_prompt and self._last.state == "running"):
            return LastCommand("unconfirmed", cwd=self._cwd)
        if self._last.state != "running":
            return self._last
        output, is_cut = self._output()
        running = self._last
        return LastCommand("running", running.command, running.cwd, None, output, is_cut)

    def _output(self) -> tuple[str, bool]:
        engine = self._engine
        row = None if self._start is None else engine.row_of(self._start)
        is_cut = row is None or row < -_MAX_ROWS
        row = -_MAX_ROWS if row is None or is_cut else row
        if engine.is_alternate:
            return "", True
        above = engine.history(-row) if row < 0 else []
        cursor = engine.cursor
        shown = engine.lines()[max(row, 0) : cursor.row + (cursor.column > 0)]
        return "\n".join(above + shown).strip("\n"), is_cut

    def _typed_command(self) -> str | None:
        """What was typed at the prompt, as the screen shows it."""
        row = None if self._typed is None else self._engine.row_of(self._typed)
        if row is None or not self._engine.has_zones:
            return None
        rows = self._engine.cells()[max(row, 0) :]
        spans = [span for each in rows for span in each.spans]
        return "".join(span.text for span in spans if span.zone == "input").strip() or None

    def _forget(self) -> None:
        if self._typed is not None:
            self._engine.forget(self._typed)
            self._typed = None
        if self._start is not None:
            self._engine.forget(self._start)
            self._start = None

    def close(self) -> None:
        self._forget()
