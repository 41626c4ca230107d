"""The text of a recording and keyframes, in a file beside it, so that both are found quickly.

The file has the lines of `screen_text`, then their times in milliseconds and their rows as arrays
of numbers, then the keyframes, and at its end a description of these parts. It is a cache: it is
made when it is needed, and made anew if the recording has changed.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import re
import tempfile
from array import array
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import msgspec

from exec_server.recording.cast_reader import CastPlace, CastReader
from exec_server.recording.recording_files import INDEX_SUFFIX
from exec_server.recording.required_text import required_text
from exec_server.recording.screen_text import ScreenText, SeenText, show
from exec_server.terminal import open_engine

_FORMAT = 1
# Between two keyframes: so much of the recording is read again to open it in the middle.
_KEYFRAME_BYTES = 1 << 20
# Rows above the screen in a keyframe.
_KEYFRAME_HISTORY = 100
_LENGTH_BYTES = 8
# The largest screen of an engine, in colours, takes some MiB; a larger dump is no keyframe.
_MOST_KEYFRAME = 16 << 20
# The description has some bytes for each keyframe.
_MOST_DESCRIPTION = 64 << 20
# Beside its text, a line has a time and a row.
_BYTES_A_LINE = 6
# Lines that are written together.
_WRITTEN_LINES = 4096
_MOST_TIME = (1 << 32) - 1
_MOST_ROW = (1 << 16) - 1
# No screen has these; an index that another program has made could.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Keyframe(msgspec.Struct, frozen=True, array_like=True):
    """The screen at one moment, as bytes that paint it."""

    time: float
    # Where the recording goes on.
    offset: int
    columns: int
    rows: int
    # Where the bytes are in the file.
    start: int
    size: int

    @property
    def place(self) -> CastPlace:
        return CastPlace(self.offset, self.time)


class _Parts(msgspec.Struct, frozen=True):
    """The description at the end of the file."""

    format: int
    cast_size: int
    cast_changed: int
    duration: float
    is_ascii: bool
    text_bytes: int
    lines: int
    keyframes: list[Keyframe]

    def check(self, size: int) -> None:
        """Raises ValueError if the parts are not within *size* bytes: the file may be anything."""
        end = self.text_bytes + _BYTES_A_LINE * self.lines
        if not (0 <= self.text_bytes <= end <= size) or self.lines < 0:
            raise ValueError("the text of the index does not fit")
        if not 0 <= self.duration < math.inf:
            raise ValueError("the duration of the index is none")
        for frame in self.keyframes:
            is_inside = end <= frame.start <= frame.start + frame.size <= size
            if not is_inside or not 0 <= frame.offset <= self.cast_size:
                raise ValueError("a keyframe of the index does not fit")
            if frame.size > _MOST_KEYFRAME or not (0 < frame.columns and 0 < frame.rows):
                raise ValueError("a keyframe of the index is too large")


class TextIndex:
    """The index of one recording, mapped into memory."""

    def __init__(self, file: IO[bytes]) -> None:
        """Raises ValueError if the file is no index of this format."""
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = len(self._map) - _LENGTH_BYTES
        length = int.from_bytes(self._map[max(end, 0) :], "little")
        try:
            if not 0 < length <= min(end, _MOST_DESCRIPTION):
                raise ValueError("the index has no description")
            self.parts = msgspec.msgpack.decode(self._map[end - length : end], type=_Parts)
            self.parts.check(end - length)
        except (ValueError, msgspec.DecodeError) as exc:
            self.close()
            raise ValueError(str(exc)) from None

    def close(self) -> None:
        self._map.close()

    def __enter__(self) -> TextIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def duration(self) -> float:
        return self.parts.duration

    def keyframe(self, time: float) -> tuple[Keyframe, bytes] | None:
        """The last keyframe at or before *time*."""
        best = None
        for frame in self.parts.keyframes:
            if frame.time <= time:
                best = frame
        return None if best is None else (best, self._map[best.start : best.start + best.size])

    def lines(self) -> Iterator[SeenText]:
        """All lines, in the order of their times."""
        start = 0
        for number in range(self.parts.lines):
            end = self._map.find(b"\n", start, self.parts.text_bytes)
            if end < 0:
                return
            yield self._seen(number, _text(self._map[start:end]))
            start = end + 1

    def find(self, pattern: re.Pattern[str]) -> Iterator[SeenText]:
        """The lines that *pattern* matches, in the order of their times."""
        size = self.parts.text_bytes
        number = done = position = 0
        is_plain = self.parts.is_ascii and pattern.pattern.isascii()
        if not is_plain:
            yield from (seen for seen in self.lines() if pattern.search(seen.text))
            return
        # Bytes are searched where they are; this finds every line that the pattern matches.
        scan = _finder(pattern, self._map, size)
        while position < size and (at := scan(position)) is not None:
            start = self._map.rfind(b"\n", 0, at) + 1
            end = self._map.find(b"\n", at, size)
            if end < 0:
                return
            number += self._newlines(done, start)
            done = start
            text = _text(self._map[start:end])
            if pattern.search(text):
                yield self._seen(number, text)
            position = end + 1

    def _newlines(self, start: int, end: int) -> int:
        return self._map[start:end].count(b"\n")

    def _seen(self, number: int, text: str) -> SeenText:
        times = self.parts.text_bytes
        rows = times + 4 * self.parts.lines
        time = int.from_bytes(self._map[times + 4 * number : times + 4 * number + 4], "little")
        row = int.from_bytes(self._map[rows + 2 * number : rows + 2 * number + 2], "little")
        return SeenText(time / 1000, row, text)


def _text(line: bytes) -> str:
    """A line as it may be printed."""
    return _CONTROL.sub("?", line.decode("utf-8", "replace"))


def _finder(pattern: re.Pattern[str], text: mmap.mmap, size: int) -> Callable[[int], int | None]:
    """Finds the next place, from a position on, in a line that *pattern* may match."""
    literal = required_text(pattern)
    if literal is not None:
        # This is ten times as fast as a pattern that does not begin with a literal text.
        wanted = literal.encode()

        def find(position: int) -> int | None:
            place = text.find(wanted, position, size)
            return None if place < 0 else place

        return find
    flags = re.MULTILINE | pattern.flags & (re.IGNORECASE | re.VERBOSE | re.DOTALL)
    scan = re.compile(pattern.pattern.encode(), flags)

    def search(position: int) -> int | None:
        found = scan.search(text, position, size)
        return None if found is None else found.start()

    return search


def open_index(path: str | os.PathLike[str]) -> TextIndex:
    """The index of the recording at *path*; it is made if there is none that fits.

    Raises CastError or OSError if the recording cannot be read, ImportError without an engine.
    """
    place = os.fspath(path) + INDEX_SUFFIX
    stat = os.stat(path)
    if (found := made_index(path)) is not None:
        return found
    with _new_file(place) as file:
        _build(CastReader(path), file, stat)
        index = TextIndex(file)
        # Without the right to write there, the index lives as long as this object.
        with contextlib.suppress(OSError):
            if isinstance(file.name, str):
                os.replace(file.name, place)
        return index


def made_index(path: str | os.PathLike[str]) -> TextIndex | None:
    """The index beside the recording at *path*, if there is one that fits. Raises OSError."""
    stat = os.stat(path)
    with (
        contextlib.suppress(OSError, ValueError),
        open(os.fspath(path) + INDEX_SUFFIX, "rb") as file,
    ):
        index = TextIndex(file)
        parts = index.parts
        wanted = (_FORMAT, stat.st_size, stat.st_mtime_ns)
        if (parts.format, parts.cast_size, parts.cast_changed) == wanted:
            return index
        index.close()
    return None


@contextlib.contextmanager
def _new_file(place: str) -> Iterator[IO[bytes]]:
    """A new file beside *place*, or one without a name if that is not allowed."""
    try:
        fd, name = tempfile.mkstemp(
            prefix=f"{os.path.basename(place)}-", dir=os.path.dirname(place)
        )
    except OSError:
        with tempfile.TemporaryFile() as file:
            yield file
        return
    try:
        with open(name, "w+b", opener=lambda *_: fd) as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


class _KeyFrame(NamedTuple):
    time: float
    offset: int
    columns: int
    rows: int
    data: bytes


def _build(reader: CastReader, file: IO[bytes], stat: os.stat_result) -> None:
    times, rows = array("I"), array("H")
    dumps: list[_KeyFrame] = []
    is_ascii, size, duration = True, 0, 0.0
    texts: list[str] = []

    def write() -> int:
        nonlocal is_ascii
        lines = "".join([f"{text}\n" for text in texts]).encode("utf-8", "replace")
        is_ascii = is_ascii and lines.isascii()
        texts.clear()
        return file.write(lines)

    for item in _walk(reader):
        if isinstance(item, SeenText):
            texts.append(item.text.replace("\n", " "))
            times.append(min(int(item.time * 1000), _MOST_TIME))
            rows.append(min(item.row, _MOST_ROW))
            if len(texts) >= _WRITTEN_LINES:
                size += write()
        elif isinstance(item, _KeyFrame):
            dumps.append(item)
        else:
            duration = item
    size += write()
    place = size + file.write(times.tobytes()) + file.write(rows.tobytes())
    frames = []
    for dump in dumps:
        frames.append(
            Keyframe(dump.time, dump.offset, dump.columns, dump.rows, place, len(dump.data))
        )
        place += file.write(dump.data)
    parts = _Parts(
        _FORMAT, stat.st_size, stat.st_mtime_ns, duration, is_ascii, size, len(times), frames
    )
    encoded = msgspec.msgpack.encode(parts)
    file.write(encoded + len(encoded).to_bytes(_LENGTH_BYTES, "little"))
    file.flush()


def _walk(reader: CastReader) -> Iterator[SeenText | _KeyFrame | float]:
    """The lines and keyframes of a recording, and at the end its duration."""
    text = ScreenText(reader.header.columns, reader.header.rows)
    # The text forgets what is above the screen, which a larger screen shows again.
    engine = open_engine(reader.header.columns, reader.header.rows)
    try:
        last, duration = reader.start.offset, 0.0
        for event, place in reader.events():
            yield from text.feed(event)
            columns = engine.columns
            show(engine, event)
            duration = event.time
            # New columns wrap the lines anew, which a keyframe before them could not repeat.
            if place.offset - last >= _KEYFRAME_BYTES or engine.columns != columns:
                last = place.offset
                dump = engine.dump(history=_KEYFRAME_HISTORY)
                if len(dump) > _MOST_KEYFRAME:
                    continue
                yield _KeyFrame(place.time, last, engine.columns, engine.rows, dump)
        yield from text.look()
        yield duration
    finally:
        text.close()
        engine.close()
