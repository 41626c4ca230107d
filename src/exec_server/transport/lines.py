"""One message a line: for stdio, and for plain peers on a Unix socket."""

from __future__ import annotations

from collections.abc import Iterator


class LineTooLong(Exception):
    """A line passed the limit before it ended."""


class LineBuffer:
    """Finds the lines in a stream of bytes, however it is split; blank lines are skipped."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # A line that has not ended. Its pieces are joined at once, because they may be tiny.
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that *data* completes, without their terminators."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = self._take(line)
            whole = whole[:-1] if whole.endswith(b"\r") else whole
            if len(whole) > self._max_bytes:
                raise LineTooLong
            if whole.strip(b" \t\r"):
                yield whole
        self._rest += rest
        # One byte more than the limit may still be the carriage return.
        if len(self._rest) > self._max_bytes + 1:
            raise LineTooLong

    def _take(self, line: bytes) -> bytes:
        if not self._rest:
            return line
        whole = bytes(self._rest) + line
        self._rest.clear()
        return whole
