"""Takes the data frames of a client out of what is read, before picows sees them; no I/O.

picows also removes masks with stores that go past the caches (frame_masks.py). Here each data frame
gets a buffer of its own and is unmasked there. Everything else is left to picows: control frames,
violations of the protocol, and frames that are larger than those of a relay.
"""

from __future__ import annotations

from exec_server.transport.frame_masks import Mask
from exec_server.transport.picows_names import WSMsgType

# A larger frame is left to picows, whose buffer grows with what has come of it.
_MOST_BYTES = 512 * 1024
_KINDS = (WSMsgType.CONTINUATION, WSMsgType.TEXT, WSMsgType.BINARY)
_FIN, _MASKED = 0x80, 0x80
_PING, _PONG, _CONTROL_BYTES = 0x9, 0xA, 125
_KEY_BYTES = 4
# A frame gets its buffer when a sixteenth of it has come: a header alone must not take memory.
_LEAST_SHARE = 4
# More than will ever come.
_EVERYTHING = 1 << 62


class DataFrame:
    """A frame with the members of picows' own that listeners use."""

    __slots__ = ("_payload", "fin", "last_in_buffer", "msg_type", "payload_size")

    rsv1 = rsv2 = rsv3 = False

    def __init__(self, first: int, payload: bytearray) -> None:
        self.msg_type = _KINDS[first & 0x0F]
        self.fin = first >= _FIN
        # True for the last part of a read.
        self.last_in_buffer = False
        self._payload = payload
        self.payload_size = len(payload)

    def get_payload_as_bytes(self) -> bytes:
        return bytes(self._payload)

    def get_payload_as_memoryview(self) -> memoryview:
        return memoryview(self._payload)


class FrameSorter:
    """Sorts what comes from one client.

    *room* is where to read to. Nothing is in it between two reads, so sockets may share one.
    """

    __slots__ = (
        "_filled",
        "_first",
        "_frame",
        "_key",
        "_mask",
        "_most",
        "_passing",
        "_rest",
        "_room",
    )

    def __init__(self, mask: Mask, room: bytearray, *, frame_bytes: int) -> None:
        self._mask = mask
        self._room = room
        self._most = min(frame_bytes, _MOST_BYTES)
        # The beginning of a frame that has no buffer yet.
        self._rest = b""
        # A frame of which a part has come, and what its header said.
        self._frame: bytearray | None = None
        self._filled = 0
        self._first, self._key = 0, b""
        # The number of bytes that are picows' in any case.
        self._passing = 0

    def room(self) -> memoryview:
        """Where to read to next. Data goes straight to the buffer of a frame that is incomplete."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._room)[len(self._rest) :]

    def sort(self, size: int) -> list[DataFrame | memoryview]:
        """*size* bytes were read: return frames, and the bytes for picows, in their order.

        The bytes are valid until the next read.
        """
        frame = self._frame
        if frame is None:
            return self._sort(size)
        self._filled += size
        if self._filled < len(frame):
            return []
        self._frame = None
        self._mask(self._key, frame)
        return [DataFrame(self._first, frame)]

    def _sort(self, size: int) -> list[DataFrame | memoryview]:
        found: list[DataFrame | memoryview] = []
        room, at, end = self._room, 0, len(self._rest) + size
        if self._rest:
            room[: len(self._rest)], self._rest = self._rest, b""
        while at < end:
            if not self._passing:
                start, payload_size = self._read_header(at, end)
                if start > end:
                    self._rest = bytes(room[at:end])
                    break
                if payload_size >= 0:
                    key, stop = bytes(room[start - _KEY_BYTES : start]), start + payload_size
                    if stop > end:
                        self._keep(at, start, end, key, payload_size)
                        break
                    frame = room[start:stop]
                    self._mask(key, frame)
                    found.append(DataFrame(room[at], frame))
                    at = stop
                    continue
            stop = min(at + self._passing, end)
            self._passing -= stop - at
            found.append(memoryview(room)[at:stop])
            at = stop
        return found

    def _keep(self, at: int, start: int, end: int, key: bytes, size: int) -> None:
        """Keep what has come of a frame, whose payload of *size* bytes begins at *start*."""
        part_bytes = end - start
        if part_bytes < size >> _LEAST_SHARE and end - at <= len(self._room) >> 1:
            self._rest = bytes(self._room[at:end])
            return
        self._frame = frame = bytearray(size)
        frame[:part_bytes] = memoryview(self._room)[start:end]
        self._filled = part_bytes
        self._first, self._key = self._room[at], key

    def _read_header(self, at: int, end: int) -> tuple[int, int]:
        """Return where the payload begins, beyond *end* if that is not known yet, and its size.

        The size is -1 if picows has to look at the frame; `_passing` is set then.
        """
        room = self._room
        if end - at < 2:
            return end + 1, 0
        first, size = room[at], room[at + 1] - _MASKED
        if first & 0x7F > 2 or size < 0:
            # What follows a close frame, or anything else, is left to picows as a whole.
            is_control = first in (_FIN | _PING, _FIN | _PONG) and 0 <= size <= _CONTROL_BYTES
            self._passing = 2 + _KEY_BYTES + size if is_control else _EVERYTHING
            return at, -1
        start = at + 2
        if size > _CONTROL_BYTES:
            length, least = (2, 126) if size == 126 else (8, 65536)
            start += length
            if start > end:
                return end + 1, 0
            size = int.from_bytes(room[start - length : start], "big")
            if size < least:
                self._passing = _EVERYTHING
                return at, -1
        start += _KEY_BYTES
        if size > self._most:
            # picows refuses it if it is too large.
            self._passing = start - at + size
            return at, -1
        return start, size
