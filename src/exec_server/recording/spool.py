"""The spool: what happens to recorded terminals, in memory that recorder and writer share.

The recorder appends frames to segments, which are files in memory without a name, and the writer
reads them when it has time. What was appended is there as long as one of the two lives. Nothing of
it is on a disk, because secrets are still in it.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

# A terminal, the size of what follows, and the time of output; the time of an event is -1.
_HEAD = struct.Struct("<IId")
_IS_EVENT = -1.0
# A segment takes no more frames when it has so many bytes. Its memory is free once it is read.
SEGMENT_BYTES = 4 << 20
# An empty spool keeps at most so much memory for the next output.
_KEPT_BYTES = 64 << 10


class SpoolFrame(NamedTuple):
    """Output of a terminal at a time, or an encoded event, whose *time* is None."""

    terminal: int
    time: float | None
    data: memoryview


class SpoolSegment:
    """A part of the spool from a position on. The position counts the bytes of all segments."""

    def __init__(self, start: int) -> None:
        """Raises OSError if there is no memory or no descriptor."""
        self.fd = os.memfd_create("recordings", os.MFD_CLOEXEC)
        self.start = self.end = start

    def append(self, head: bytes, data: bytes) -> None:
        """Raises OSError; nothing is appended then."""
        at, size = self.end - self.start, len(head) + len(data)
        if os.pwritev(self.fd, (head, data), at) < size:
            os.ftruncate(self.fd, at)
            raise OSError("a part of the output was written to the spool")
        self.end += size

    def close(self) -> None:
        os.close(self.fd)


class Spool:
    """The recorder's side: it appends, and lets go of what was confirmed."""

    def __init__(self) -> None:
        # Everything before the first position is in the recordings; the second one is the end.
        self.confirmed = 0
        self.end = 0
        # Segments with something that is not confirmed, and the one that takes more.
        self.segments: deque[SpoolSegment] = deque()

    @property
    def confirmed_offset(self) -> int:
        """Where in the first segment the rest begins."""
        return self.confirmed - self.segments[0].start if self.segments else 0

    @property
    def waiting(self) -> int:
        """Bytes that are not confirmed."""
        return self.end - self.confirmed

    @property
    def needs_segment(self) -> bool:
        """True if `extend` comes before the next `append`."""
        if not self.segments:
            return True
        last = self.segments[-1]
        return last.end - last.start >= SEGMENT_BYTES

    def extend(self) -> SpoolSegment:
        """A new segment, which takes the next frames. Raises OSError."""
        self.segments.append(SpoolSegment(self.end))
        return self.segments[-1]

    def append_output(self, terminal: int, time: float, data: bytes) -> None:
        """Raises OSError."""
        self._append(_HEAD.pack(terminal, len(data), time), data)

    def append_event(self, terminal: int, event: bytes) -> None:
        """Raises OSError."""
        self._append(_HEAD.pack(terminal, len(event), _IS_EVENT), event)

    def _append(self, head: bytes, data: bytes) -> None:
        last = self.segments[-1]
        last.append(head, data)
        self.end = last.end

    def confirm(self, position: int) -> bool:
        """Everything before *position* is in the recordings.

        True if that is everything, and so much memory that another segment should take over.
        """
        self.confirmed = max(self.confirmed, min(position, self.end))
        while len(self.segments) > 1 and self.segments[0].end <= self.confirmed:
            self.segments.popleft().close()
        return not self.waiting and self._kept() > _KEPT_BYTES

    def _kept(self) -> int:
        return self.segments[-1].end - self.segments[-1].start if self.segments else 0

    def clear(self) -> None:
        """Forget everything, also what is not confirmed."""
        self.confirmed = self.end
        while self.segments:
            self.segments.popleft().close()


class SpoolReader:
    """The writer's side: it reads frames in their order."""

    def __init__(self, *, offset: int) -> None:
        """Begin *offset* bytes after the start of the first segment."""
        # Bytes that were read, without those before *offset*.
        self.count = 0
        self._offset = offset
        self._fds: deque[int] = deque()

    def add(self, fd: int) -> None:
        """Go on with the segment *fd* after those that are known; no other one grows any more."""
        self._fds.append(fd)

    @property
    def waiting(self) -> int:
        """Bytes that are not read."""
        return sum(os.fstat(fd).st_size for fd in tuple(self._fds)) - self._offset

    def read(self, most: int) -> list[SpoolFrame]:
        """The next whole frames, about *most* bytes and at least one; none if there is none."""
        while self._fds:
            data = self._data(most)
            frames = list(_frames(data))
            if frames:
                self._advance(sum(_HEAD.size + len(each.data) for each in frames))
                return frames
            if len(self._fds) == 1:
                break
            # An incomplete frame at the end of a segment was not appended.
            self._offset = 0
            os.close(self._fds.popleft())
        return []

    def rest(self) -> list[SpoolFrame]:
        """What is there of output whose frame is incomplete, because the recorder was killed."""
        data = self._data(_HEAD.size) if self._fds else memoryview(b"")
        if len(data) <= _HEAD.size:
            return []
        terminal, _, time = _HEAD.unpack_from(data)
        self._advance(len(data))
        return [] if time == _IS_EVENT else [SpoolFrame(terminal, time, data[_HEAD.size :])]

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popleft())

    def _data(self, most: int) -> memoryview:
        """What comes next: whole frames if there are any, and at least one of them."""
        data = memoryview(os.pread(self._fds[0], most, self._offset))
        if len(data) >= _HEAD.size:
            needed = _HEAD.size + _HEAD.unpack_from(data)[1]
            if needed > len(data) == most:
                data = memoryview(os.pread(self._fds[0], needed, self._offset))
        return data

    def _advance(self, size: int) -> None:
        self._offset += size
        self.count += size


def _frames(data: memoryview) -> Iterator[SpoolFrame]:
    at = 0
    while at + _HEAD.size <= len(data):
        terminal, size, time = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        at = start + size
        if at > len(data):
            return
        yield SpoolFrame(terminal, None if time == _IS_EVENT else time, data[start:at])
