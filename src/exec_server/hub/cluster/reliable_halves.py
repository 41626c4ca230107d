"""The sender and the receiver of a reliable channel, and the format of their packets."""

from __future__ import annotations

from collections import deque
from struct import Struct

# The header: kind and flags, number of this packet, number of the packet that is expected next,
# and the bytes that the peer may have sent in total.
HEAD = Struct("!BQQQ")
HEADER_BYTES = HEAD.size
# A status packet only reports. It repeats the number that the next other packet will have.
STATUS, _MORE, _LAST, END = range(4)
KIND = 0x0F
# Flags. GAP: packets are missing before one that has arrived. ASK: the peer shall report now.
GAP, ASK = 0x10, 0x20
_CODE = Struct("!H")
# The close frame of a WebSocket has room for this many bytes.
_REASON_BYTES = 123

_Piece = tuple[int, bytes | memoryview]


class ReliableSender:
    """Messages that are not sent yet, not acknowledged or not taken by the peer."""

    def __init__(self, *, fragment: int, limit: int) -> None:
        self._fragment = fragment
        self._limit = limit
        self._queue: deque[bytes] = deque()
        # The bytes of the first queued message that were sent.
        self._offset = 0
        self._end: bytes | None = None
        self.is_ended = False
        # The number of acknowledged packets, which is the number of the first packet that is sent
        # and not acknowledged; and these packets.
        self._acknowledged = 0
        self._unacknowledged: deque[_Piece] = deque()
        self._must_repeat = False
        # The number of the first missing packet at the last repetition.
        self._repeated_at = -1
        self._sent = 0
        self._credit = limit
        # For each message that the peer has not taken: the bytes that were sent up to its end.
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
        """True if a peer that follows the protocol can have reported this, now or earlier."""
        return acknowledged <= self.next_number and 0 <= credit - self._limit <= self._sent

    def hear(self, acknowledged: int, credit: int, *, has_gap: bool) -> bool:
        """Handle a report of the peer, and return True if it shows that the peer is alive."""
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
        """Send all unacknowledged packets again; False if there are none."""
        if not self._unacknowledged:
            return False
        self._must_repeat = True
        self._repeated_at = self._acknowledged
        return True

    def due(self) -> list[tuple[int, _Piece]]:
        """The packets to send now, with their numbers."""
        due: list[tuple[int, _Piece]] = []
        if self._must_repeat:
            self._must_repeat = False
            due.extend(enumerate(self._unacknowledged, self._acknowledged))
        while (piece := self._cut()) is not None:
            due.append((self.next_number, piece))
            self._unacknowledged.append(piece)
        return due

    def _cut(self) -> _Piece | None:
        """Take the next piece from the queue if the peer has room for it."""
        if not self._queue:
            # The end needs no credit, because it is sent once.
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


class ReliableReceiver:
    """Packets that have arrived in order, and the credit that the peer has."""

    def __init__(self, *, limit: int, longest: int) -> None:
        self._limit = limit
        self._longest = longest
        self.expected = 0
        self.credit = limit
        self.end: tuple[int, str] | None = None
        self._received = 0
        self._arrived: deque[bytes] = deque()
        # The message that has begun and not ended: the bytes that arrived, and the parts that were
        # taken.
        self._begun = 0
        self._parts: list[memoryview] = []

    @property
    def progress(self) -> tuple[int, int]:
        return self.expected, self.credit

    @property
    def has_messages(self) -> bool:
        return bool(self._arrived)

    def is_possible(self, number: int) -> bool:
        """True if a peer that follows the protocol can have reached *number*."""
        return number <= self.expected + self._limit // HEADER_BYTES + 1

    def accept(self, kind: int, packet: bytes) -> bool:
        """Keep the expected packet; False if it breaks the protocol."""
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
        """The complete messages.

        Parts of the next message are taken too, because it may be longer than the window.
        """
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
