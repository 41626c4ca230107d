"""The two directions of a conduit, each seen from one end, and the packets they are made of."""

from __future__ import annotations

from collections import deque
from struct import Struct

# Kind and flags, number of this packet, number expected next, bytes that may have been sent.
HEAD = Struct("!BQQQ")
HEADER_BYTES = HEAD.size
# A status takes no number of its own: it has that of the packet which would be the next.
STATUS, _MORE, _LAST, END = range(4)
KIND = 0x0F
# Flags: packets before one that came are missing; please tell how far you are.
GAP, ASK = 0x10, 0x20
_CODE = Struct("!H")
# What fits in a WebSocket's close frame.
_REASON_BYTES = 123

_Piece = tuple[int, bytes | memoryview]


class Outgoing:
    """What the peer was not sent, has not acknowledged, or has not taken."""

    def __init__(self, *, fragment: int, limit: int) -> None:
        self._fragment = fragment
        self._limit = limit
        self._queue: deque[bytes] = deque()
        # How much of the first queued message was sent.
        self._offset = 0
        self._end: bytes | None = None
        self.is_ended = False
        # Sent and not acknowledged; the first of them has the number that comes before.
        self._acknowledged = 0
        self._unacknowledged: deque[_Piece] = deque()
        self._must_repeat = False
        # The first missing packet for which all were last repeated.
        self._repeated_at = -1
        self._sent = 0
        self._credit = limit
        # What had been sent at the end of each message that the peer has not taken.
        self._marks: deque[int] = deque()
        self.taken = 0

    @property
    def next_number(self) -> int:
        return self._acknowledged + len(self._unacknowledged)

    @property
    def is_waiting(self) -> bool:
        return bool(self._unacknowledged or self._queue or self._marks or self._end is not None)

    @property
    def is_end_acknowledged(self) -> bool:
        return self.is_ended and self._end is None and not self._unacknowledged

    def queue(self, data: bytes) -> None:
        if not self.is_ended:
            self._queue.append(data)

    def finish(self, code: int, reason: str) -> None:
        if not self.is_ended:
            text = reason.encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")
            self._end = _CODE.pack(code) + text.encode()
            self.is_ended = True

    def discard(self) -> int:
        begun = [self._queue[0]] if self._offset else []
        count = len(self._queue) - len(begun)
        self._queue = deque(begun)
        return count

    def is_possible(self, acknowledged: int, credit: int) -> bool:
        """Whether a peer that keeps the rules may say this, now or earlier."""
        return acknowledged <= self.next_number and 0 <= credit - self._limit <= self._sent

    def hear(self, acknowledged: int, credit: int, *, has_gap: bool) -> bool:
        """Learn how far the peer is, and tell whether that is a reason to have patience."""
        is_alive = not self._unacknowledged
        if acknowledged > self._acknowledged:
            for _ in range(acknowledged - self._acknowledged):
                self._unacknowledged.popleft()
            self._acknowledged = acknowledged
            is_alive = True
        if credit > self._credit:
            self._credit = credit
            while self._marks and self._marks[0] <= credit - self._limit:
                self._marks.popleft()
                self.taken += 1
            is_alive = True
        if has_gap and acknowledged == self._acknowledged != self._repeated_at:
            self.repeat()
        return is_alive

    def repeat(self) -> bool:
        """Send again what was not acknowledged; False when there is nothing."""
        if not self._unacknowledged:
            return False
        self._must_repeat = True
        self._repeated_at = self._acknowledged
        return True

    def due(self) -> list[tuple[int, _Piece]]:
        """What has to be sent now, with its numbers."""
        due: list[tuple[int, _Piece]] = []
        if self._must_repeat:
            self._must_repeat = False
            due.extend(enumerate(self._unacknowledged, self._acknowledged))
        while (piece := self._cut()) is not None:
            due.append((self.next_number, piece))
            self._unacknowledged.append(piece)
        return due

    def _cut(self) -> _Piece | None:
        """Take the next piece from the queue, if the peer has room for it."""
        if not self._queue:
            # The end needs no room: it comes once.
            end, self._end = self._end, None
            return None if end is None else (END, end)
        data, start = self._queue[0], self._offset
        stop = min(len(data), start + self._fragment)
        cost = HEADER_BYTES + stop - start
        if self._sent + cost > self._credit:
            return None
        self._sent += cost
        if stop < len(data):
            self._offset = stop
            return _MORE, memoryview(data)[start:stop]
        self._queue.popleft()
        self._offset = 0
        self._marks.append(self._sent)
        return _LAST, memoryview(data)[start:] if start else data


class Incoming:
    """What has arrived in order, and how much of it was taken."""

    def __init__(self, *, limit: int, longest: int) -> None:
        self._limit = limit
        self._longest = longest
        self.expected = 0
        self.credit = limit
        self.end: tuple[int, str] | None = None
        self._received = 0
        self._arrived: deque[bytes] = deque()
        # Bytes of the message that has begun and not ended, as far as it arrived; and was taken.
        self._begun = 0
        self._parts: list[memoryview] = []

    @property
    def progress(self) -> tuple[int, int]:
        return self.expected, self.credit

    @property
    def has_messages(self) -> bool:
        return bool(self._arrived)

    def is_possible(self, number: int) -> bool:
        """Whether a peer that keeps the rules may have come to *number*, with an end at most."""
        return number <= self.expected + self._limit // HEADER_BYTES + 1

    def accept(self, kind: int, packet: bytes) -> bool:
        """Keep the expected packet; False when the peer should not have sent it."""
        if self.end is not None:
            return False
        self.expected += 1
        if kind == END:
            self.end = _end_of(packet)
            return not self._begun
        self._received += len(packet)
        size = self._begun + len(packet) - HEADER_BYTES
        if self._received > self.credit or size > self._longest:
            return False
        self._begun = 0 if kind == _LAST else size
        self._arrived.append(packet)
        return True

    def take(self) -> list[bytes]:
        """The whole messages. Parts of the next are taken too, as it may be beyond the window."""
        messages = []
        while self._arrived:
            packet = self._arrived.popleft()
            self.credit += len(packet)
            is_last = packet[0] & KIND == _LAST
            if is_last and not self._parts:
                messages.append(packet[HEADER_BYTES:])
                continue
            self._parts.append(memoryview(packet)[HEADER_BYTES:])
            if is_last:
                messages.append(b"".join(self._parts))
                self._parts.clear()
        return messages


def is_well_formed(packet: bytes) -> bool:
    size = len(packet)
    if size < HEADER_BYTES or packet[0] & ~(KIND | GAP | ASK):
        return False
    kind = packet[0] & KIND
    if kind == _LAST:
        return True
    if kind == _MORE:
        return size > HEADER_BYTES
    if kind == STATUS:
        return size == HEADER_BYTES
    return kind == END and _end_of(packet) is not None


def _end_of(packet: bytes) -> tuple[int, str] | None:
    text = packet[HEADER_BYTES + _CODE.size :]
    if len(packet) < HEADER_BYTES + _CODE.size or len(text) > _REASON_BYTES:
        return None
    try:
        return _CODE.unpack_from(packet, HEADER_BYTES)[0], text.decode()
    except UnicodeDecodeError:
        return None
