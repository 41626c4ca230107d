"""ShortenedOutput: the beginning of an output at once, and its end last, for `run --max-output`."""

from __future__ import annotations

from exec_server.client.process.bounded_output import BoundedOutput, Gap


class ShortenedOutput:
    """One stream, of which *max_bytes* are shown: the first half, and as much of the end."""

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes - max_bytes // 2
        self._end = BoundedOutput(max_bytes // 2, has_head=False)
        self._last_byte = b"\n"

    def show(self, data: bytes) -> bytes:
        """The part of *data* that is shown now."""
        now = data[: self._room]
        self._room -= len(now)
        self._last_byte = now[-1:] or self._last_byte
        self._end.add(data[len(now) :])
        return now

    def rest(self) -> bytes:
        """The end of the output, after a line that says how much is missing before it."""
        content, missing = self._end.content(), self._end.dropped_bytes
        if not missing:
            return content
        newline = b"" if self._last_byte == b"\n" else b"\n"
        return b"%b%b\n%b" % (newline, str(Gap(0, missing)).encode(), content)
