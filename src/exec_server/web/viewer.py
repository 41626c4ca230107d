"""One tab that shows a process: its window, and a fresh frame when it is behind.

The tab acknowledges bytes when xterm.js has drawn them, not when they arrive. A tab that is visible
and draws slowly slows the process down, as every terminal does. A tab that sleeps, or is hidden and
does not keep up, is left out instead; when it is back it gets one frame with the current screen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

# Sent and not drawn yet. xterm.js parses some MB a second, so this is drawn in well below 100 ms,
# and what is typed meanwhile has an answer soon after.
WINDOW_BYTES = 128 * 1024

FrameKind = Literal["output", "frame"]
Send = Callable[[FrameKind, bytes], None]


class Viewer:
    """Decides what is sent to a tab. It does no I/O: *send* does."""

    def __init__(
        self, send: Send, draw: Callable[[], bytes], *, window: int = WINDOW_BYTES
    ) -> None:
        """*draw* returns the bytes that paint the current screen on an empty one."""
        self._send = send
        self._draw = draw
        self._window = window
        self._unacknowledged = 0
        self._is_hidden = False
        self._has_begun = False
        # True while output is not sent, because the tab has to catch up with a frame.
        self.is_behind = True

    @property
    def is_full(self) -> bool:
        """True if the process should wait for this tab."""
        return not self.is_behind and not self._is_hidden and self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        return self._unacknowledged >= self._window

    @property
    def answers_queries(self) -> bool:
        """True if the terminal in the tab draws what comes, and answers questions in it."""
        return not self.is_behind and not self._is_hidden

    def begin(self) -> None:
        """Send the current screen."""
        self._has_begun = True
        self._refresh()

    def offer(self, data: bytes) -> None:
        """Send new output, unless the tab is behind."""
        if self.is_behind:
            return
        if self._is_hidden and self._has_no_room:
            self.is_behind = True
            return
        self._unacknowledged += len(data)
        self._send("output", data)

    def acknowledge(self, count: int) -> None:
        """The tab has drawn *count* more bytes."""
        self._unacknowledged = max(0, self._unacknowledged - count)
        self._catch_up()

    def hide(self, is_hidden: bool) -> None:
        """The tab was hidden, or is visible again."""
        self._is_hidden = is_hidden
        self._catch_up()

    def fall_behind(self) -> None:
        """Do not wait for the tab any longer: it gets a frame when it has drawn what it has."""
        self.is_behind = True

    def _catch_up(self) -> None:
        # What is drawn before a frame is drawn in vain, so the frame waits for most of it.
        is_almost_there = self._unacknowledged <= self._window // 4
        if self._has_begun and self.is_behind and not self._is_hidden and is_almost_there:
            self._refresh()

    def _refresh(self) -> None:
        data = self._draw()
        self.is_behind = False
        self._unacknowledged += len(data)
        self._send("frame", data)
