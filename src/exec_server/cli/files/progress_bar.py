"""A line on a terminal that shows the progress of a copy."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from exec_server.client.files.transfer.progress import Progress

# The line is drawn at most once in this many seconds.
_INTERVAL = 0.1
_BAR = 12
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class ProgressLine:
    """Draws the line on *stream*, which is a terminal; `clear` removes it."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._drawn = self._started - _INTERVAL
        self._is_shown = False

    def update(self, progress: Progress) -> None:
        now = self._clock()
        if now - self._drawn < _INTERVAL:
            return
        self._drawn = now
        text = render(progress, now - self._started, width=_width(self._stream))
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()
        self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def progress_line() -> ProgressLine | None:
    """A line on stderr, if that is a terminal."""
    return ProgressLine(sys.stderr) if sys.stderr.isatty() else None


def render(progress: Progress, seconds: float, *, width: int) -> str:
    """The line after so many *seconds*, in at most *width* columns."""
    rate = (progress.bytes - progress.kept_bytes) / seconds if seconds > 0 else 0.0
    parts = [
        f"{size(progress.bytes)} of {size(progress.total_bytes)}",
        f"{progress.files}/{progress.total_files} files",
        f"{size(rate)}/s",
    ]
    left = progress.total_bytes - progress.bytes
    if rate > 0 and left > 0:
        parts.append(f"{duration(left / rate)} left")
    share = min(progress.bytes / progress.total_bytes, 1.0) if progress.total_bytes else 0.0
    filled = int(share * _BAR)
    bar = f"[{'#' * filled}{'.' * (_BAR - filled)}]"
    percent, text = f"{int(share * 100):3}%", "  ".join(parts)
    line = f"{percent} {bar} {text}"
    # A character in the last column would make some terminals begin a new line.
    return (line if len(line) < width else f"{percent} {text}")[: width - 1]


def size(number: float) -> str:
    """A number of bytes: 512 B, 1.5 KiB, 12.0 GiB."""
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number /= 1024
        unit += 1
    return f"{number:.0f} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A length of time: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80
