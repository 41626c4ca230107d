"""One line for whoever watches: the connection is lost, and it is back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exec_server.client.session_link import ConnectionState

_STDERR = 2


class Notices:
    """Tells of lost connections on stderr: to people, and to others when they ask for it."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._is_shown = is_verbose or os.isatty(_STDERR)
        # Whether there is no connection now.
        self.is_lost = False
        # Nothing returns the carriage of a raw terminal.
        self.is_raw = False
        self.on_reconnected: Callable[[], None] | None = None

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
            say(text, is_raw=self.is_raw)


def say(text: str, *, is_raw: bool = False) -> None:
    """A remark of ours, told apart from what a command says by its brackets."""
    # In the middle of somebody else's line, perhaps.
    shown = f"\r\n[{text}]\r\n" if is_raw else f"[{text}]\n"
    with contextlib.suppress(OSError):
        os.write(_STDERR, shown.encode())
