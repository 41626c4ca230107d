"""Appends events to a recording, in whole lines whatever happens.

The kernel copies a write page by page, and SIGKILL ends it between two pages. No line crosses the
end of a page here (blanks fill the page before), so a file consists of whole lines at any moment.
"""

from __future__ import annotations

import codecs
import errno
import os
from collections.abc import Iterable

import msgspec

from exec_server.recording.cast_format import (
    EXIT,
    MARK,
    OUTPUT,
    RESIZE,
    CastHeader,
    Version,
    WriterState,
)
from exec_server.recording.secret_filter import SecretFilter

PAGE = 4096
# The least room for the next line; with less, the rest of the page is filled with blanks.
_LEAST_ROOM = 256
# Characters of a command or a mark: the header has to fit on a page, and a mark into its end.
_LONGEST_COMMAND = 400
_LONGEST_MARK = 100
_END = b'"]\n'
# A line is cut at most so many bytes before the end of its page: an escape has six bytes, and
# before it is no character that is cut. Blanks take their place.
_MOST_BLANKS = 8
_FILLED_ENDS = [b'"]' + b" " * blanks + b"\n" for blanks in range(_MOST_BLANKS + 1)]


class CastWriter:
    """Writes one recording to a new file, which only its owner can read.

    It is used by one thread. The times of its calls are seconds since the start of the recording.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: CastHeader,
        *,
        secrets: Iterable[str] = (),
        is_again: bool = False,
    ) -> None:
        """Raises OSError, also if the file exists.

        If *is_again*, an earlier writer may have made this recording, which is begun anew then.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._prepare(os.fspath(path), header.version, secrets)
        line = bytearray(self._clean(header).encode())
        self._fill(line)
        if is_again and _begins_with(self.path, line):
            os.unlink(self.path)
        self._open(flags)
        try:
            self._append(line)
        except BaseException:
            self._release()
            raise

    @classmethod
    def resumed(cls, state: WriterState, *, secrets: Iterable[str] = ()) -> CastWriter:
        """Go on with a recording at *state*; what was written after it is cut. Raises OSError."""
        writer = cls.__new__(cls)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        writer._prepare(state.path, state.version, secrets)
        writer._open(flags)
        try:
            if os.fstat(writer._fd).st_size < state.size:
                raise OSError(errno.EIO, "the recording was cut by another program", state.path)
            os.ftruncate(writer._fd, state.size)
        except BaseException:
            writer._release()
            raise
        writer.size, writer._written = state.size, state.written
        writer._decoder.setstate((state.undecoded, 0))
        writer._filter.take_over(state.held, state.stars)
        return writer

    def _prepare(self, path: str, version: Version, secrets: Iterable[str]) -> None:
        self.path = path
        self.size = 0
        self._version = version
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._filter = SecretFilter(secrets)
        # The time that readers have after the last line: the sum of what was written.
        self._written = 0.0

    def _open(self, flags: int) -> None:
        self._fd = os.open(self.path, flags, 0o600)

    @property
    def state(self) -> WriterState:
        """How far the recording is, for `resumed`."""
        undecoded, _ = self._decoder.getstate()
        held, stars = self._filter.held
        return WriterState(
            self.path, self._version, self.size, self._written, undecoded, held, stars
        )

    def _clean(self, header: CastHeader) -> CastHeader:
        return msgspec.structs.replace(
            header,
            command=self._words(header.command, _LONGEST_COMMAND),
            title=self._words(header.title, 100),
            owner=self._words(header.owner, 100),
            term=self._words(header.term, 30),
        )

    def _words(self, text: str | None, most: int) -> str | None:
        """A text of the header without secrets, and not too long."""
        if text is None:
            return None
        words = SecretFilter(self._filter.secrets)
        clean = (words.feed(text) + words.rest())[:most]
        return clean.encode("utf-8", "replace").decode()

    @property
    def is_closed(self) -> bool:
        return self._fd < 0

    def output(self, time: float, data: bytes | memoryview) -> None:
        """The program has printed *data*, which may end inside a character."""
        if text := self._filter.feed(self._decoder.decode(data)):
            self._event(time, OUTPUT, text)

    def resized(self, time: float, columns: int, rows: int) -> None:
        self._event(time, RESIZE, f"{columns}x{rows}")

    def mark(self, time: float, text: str) -> None:
        """Players stop or jump at marks; ours also say who drove, and what is missing."""
        self._event(time, MARK, self._words(text, _LONGEST_MARK) or "")

    def exited(self, time: float, status: int) -> None:
        """The exit status, after the last output."""
        self._flush(time)
        if self._version == 3:
            self._event(time, EXIT, str(status))

    def close(self, time: float) -> None:
        if not self.is_closed:
            try:
                self._flush(time)
            finally:
                self._release()

    def _flush(self, time: float) -> None:
        text = self._filter.feed(self._decoder.decode(b"", True)) + self._filter.rest()
        self._decoder.reset()
        if text:
            self._event(time, OUTPUT, text)

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    # Lines.

    def _event(self, time: float, code: str, text: str) -> None:
        encoded = _encode(text)
        head = b'[%s,"%s","' % (self._time(time), code.encode())
        room = PAGE - self.size % PAGE - len(head) - len(_END)
        if code == OUTPUT and len(encoded) - 2 > room:
            self._append(b"".join(self._pages(time, head, encoded)))
            return
        # The quotes around the text are left out. What is no output is short, or it is cut.
        stop = len(encoded) - 1
        if stop - 1 > room:
            stop = _cut(encoded, 1, 1 + room)
        line = bytearray(b"%b%b%b" % (head, encoded[1:stop], _END))
        self._fill(line)
        self._append(line)

    def _pages(self, time: float, head: bytes, encoded: bytes) -> list[bytes]:
        """Lines of output, of which all but the last fill their pages."""
        room = PAGE - self.size % PAGE - len(head) - len(_END)
        # The time after the first line is the same, so all others begin alike.
        next_head = b'[%s,"%s","' % (self._time(time), OUTPUT.encode())
        next_room = PAGE - len(next_head) - len(_END)
        start, end = 1, len(encoded) - 1
        parts: list[bytes] = []
        while end - start > room:
            stop = start + room
            # Few pages end near an escape or within a character.
            if encoded[stop] >= 0x80 or encoded.find(b"\\", stop - 6, stop) >= 0:
                stop = _cut(encoded, start, stop)
            parts += (head, encoded[start:stop], _FILLED_ENDS[start + room - stop])
            start, head, room = stop, next_head, next_room
        if start < end:
            last = bytearray(b"%b%b%b" % (head, encoded[start:end], _END))
            self._fill(last, at=0)
            parts.append(bytes(last))
        return parts

    def _time(self, time: float) -> bytes:
        """The time of the next line; rounding errors do not add up."""
        if self._version == 2:
            self._written = max(time, self._written)
            return b"%.6f" % self._written
        interval = round(max(0.0, time - self._written), 6)
        self._written += interval
        return b"%.6f" % interval

    def _fill(self, line: bytearray, at: int | None = None) -> None:
        """If the next line may not fit, blanks before the line end fill the page.

        *at* is where the line begins, which is the end of the file if it is not given.
        """
        room = PAGE - ((self.size if at is None else at) + len(line)) % PAGE
        if room < _LEAST_ROOM:
            line[-1:] = b" " * room + b"\n"

    def _append(self, data: bytes | bytearray) -> None:
        if self.is_closed:
            return
        written = os.write(self._fd, data)
        if written < len(data):
            # The disk is full. Whole lines stay.
            end = data.rfind(b"\n", 0, written) + 1
            os.ftruncate(self._fd, self.size + end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self.size += len(data)


def _begins_with(path: str, line: bytearray) -> bool:
    """True if the file at *path* begins with *line*, or with a part of it and has no more."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
            return line.startswith(file.read(len(line)))
    except OSError:
        return False


def _encode(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        # A lone surrogate, which a name or a title may have, is not valid in UTF-8.
        return msgspec.json.encode(text.encode("utf-8", "replace").decode())


def _cut(encoded: bytes, start: int, most: int) -> int:
    """Where JSON text can be cut, from *start* to at most *most*: not in an escape or character."""
    cut = most
    while cut > start and encoded[cut] & 0xC0 == 0x80:
        cut -= 1
    # A sequence such as \u001b has six bytes. An escaped backslash is a pair, so pairs are counted.
    last = encoded.rfind(b"\\", max(start, cut - 5), cut)
    if last >= 0:
        first = last
        while first > start and encoded[first - 1] == 0x5C:
            first -= 1
        is_escape = (last - first) % 2 == 0
        length = 6 if encoded[last + 1 : last + 2] == b"u" else 2
        if is_escape and last + length > cut:
            cut = last
    return cut
