"""Lines on stderr that report a lost connection and its return."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from exec_server.printable import escaped

if TYPE_CHECKING:
    from exec_server.client.session_link import ConnectionState

_STDERR = 2


class Notices:
    """Reports lost connections if stderr is a terminal, or if *is_verbose* is set."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._is_shown = is_verbose or os.isatty(_STDERR)
        # True while there is no connection.
        self.is_lost = False
        # True while the terminal is raw: a line then needs a carriage return.
        self.is_raw = False
        self.on_reconnected: Callable[[], None] | None = None
        # True while a full-screen program has the terminal.
        self.is_full_screen: Callable[[], bool] = lambda: False

    def on_state(self, state: ConnectionState) -> None:
        if state == "recovering":
            self.is_lost = True
            self._tell("connection lost, reconnecting...")
        elif state == "connected" and self.is_lost:
            self.is_lost = False
            self._tell("reconnected")
            if self.on_reconnected is not None:
                self.on_reconnected()

    def _tell(self, text: str) -> None:
        if self._is_shown:
            self.remark(text)

    def remark(self, text: str) -> None:
        """Print a remark; over the last line of a full-screen program, whose cursor stays."""
        self._show(remark_text(text, is_raw=self.is_raw, is_full=self.is_full_screen()))

    def _show(self, text: str) -> None:
        _write(text)


def remark_text(text: str, *, is_raw: bool, is_full: bool = False) -> str:
    """A remark in brackets, which distinguish it from the output of a command."""
    if is_raw and is_full:
        return f"\x1b7\x1b[999;1H\x1b[0;7m[{escaped(text)}]\x1b[0m\x1b[K\x1b8"
    # The server may have written a part of it.
    text = escaped(text, keep="\n")
    # The cursor of a raw terminal may be in the middle of a line of output.
    return f"\r\n[{text}]\r\n" if is_raw else f"[{text}]\n"


def say(text: str, *, is_raw: bool = False) -> None:
    """Print a remark."""
    _write(remark_text(text, is_raw=is_raw))


def _write(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(_STDERR, text.encode())
