"""Reliable messages between two nodes, over a bus that may lose, double and reorder packets.

Nothing here waits or reads a clock. The owner publishes the packets that `packets` returns, passes
each packet from the bus to `receive`, and calls `tick` at intervals while `needs_ticks` is true.

Each packet also reports on the opposite direction: the number of the packet that its sender expects
next, and how many bytes the peer may have sent in total (the credit). Packets that were not
acknowledged are sent again, beginning with the first missing one. The header of a packet counts as
well, so that the number of empty messages is bounded too.
"""

from __future__ import annotations

from exec_server.hub.cluster.reliable_halves import (
    ASK,
    END,
    GAP,
    HEAD,
    HEADER_BYTES,
    KIND,
    STATUS,
    ReliableReceiver,
    ReliableSender,
    is_well_formed,
)
from exec_server.limits import DEFAULT_LIMITS

# The peer is told of new credit after this many bytes at the latest. A sender bounds its queue by
# the messages that were taken, so it must hear of them long before a large window is used up.
_ANNOUNCE_BYTES = 128 * 1024


class ReliableChannel:
    """One end. Messages arrive once, in order and unchanged, or the channel fails.

    *window* bounds the bytes that are on the way to the peer or not taken by it, *fragment* the
    bytes of one packet and *longest* the bytes of one message. The channel fails after *patience*
    ticks in which it waited for the peer and saw no progress. Both ends need the same *window*.

    An end closes both directions. A side that has ended is finished as soon as its peer knows of
    the end; messages of the peer that are still on the way are lost.
    """

    def __init__(
        self,
        *,
        window: int,
        fragment: int,
        patience: int,
        longest: int = DEFAULT_LIMITS.message_bytes,
    ) -> None:
        if not 0 < fragment <= window or patience < 1:
            raise ValueError("a reliable channel needs 0 < fragment <= window and patience > 0")
        # A packet whose payload is as long as the window must fit, so its header is added.
        limit = window + HEADER_BYTES
        self._sender = ReliableSender(fragment=fragment, limit=limit)
        self._receiver = ReliableReceiver(limit=limit, longest=longest)
        self._patience = patience
        self._announce = min(max(1, window // 4), _ANNOUNCE_BYTES)
        self._is_paused = False
        self._has_stopped = False
        # Ticks in which we waited for the peer and saw no progress.
        self._silent = 0
        # The progress that the peer was told last, whether it must be told again now, and the
        # flags of that packet.
        self._told = self._receiver.progress
        self._must_tell = False
        self._flags = 0
        # A gap or a duplicate is reported once, not for each packet of a burst.
        self._told_gap = False
        self._told_duplicate = False
        self.malformed = 0

    @property
    def needs_ticks(self) -> bool:
        """True while one side waits for the other."""
        return not self._has_stopped and (
            self._sender.is_waiting
            or self._told != self._receiver.progress
            # The next tick allows another report.
            or self._told_gap
            or self._told_duplicate
        )

    @property
    def ended(self) -> tuple[int, str] | None:
        """The close code and reason of the peer, once all messages before them were taken."""
        return None if self._receiver.has_messages else self._receiver.end

    @property
    def is_finished(self) -> bool:
        """True if this side has ended and the peer knows it or has ended too.

        The owner may then forget the channel.
        """
        if not self._sender.is_ended:
            return False
        has_told_end = self._receiver.end is not None and self._told[0] == self._receiver.expected
        return has_told_end or self._sender.is_end_acknowledged

    @property
    def has_failed(self) -> bool:
        """True if patience ran out, or the peer broke the protocol, before the channel finished."""
        return self._has_stopped and not self.is_finished

    def send(self, data: bytes) -> None:
        """Queue a message; after the end or a failure it is dropped."""
        if not self._has_stopped:
            self._sender.queue(data)

    def discard(self) -> int:
        """Drop the queued messages of which nothing was sent yet, and return their number."""
        count = self._sender.discard()
        if not self._sender.is_waiting:
            self._silent = 0
        return count

    def end(self, code: int, reason: str) -> None:
        """Tell the peer, after all queued messages, that no more will come."""
        if not self._has_stopped:
            self._sender.finish(code, reason)

    def pause(self) -> None:
        """Take no messages. The peer may fill its window and then has to wait."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def messages(self) -> list[bytes]:
        """Take the messages that have arrived completely. The peer may then send more."""
        if self._is_paused:
            return []
        found = self._receiver.take()
        if self._receiver.credit - self._told[1] >= self._announce:
            self._must_tell = True
        return found

    def taken(self) -> int:
        """The number of our messages that the peer has taken since the last call."""
        count, self._sender.taken = self._sender.taken, 0
        return count

    def receive(self, packet: bytes) -> None:
        """Handle a packet from the bus. A malformed one is counted and ignored."""
        if self._has_stopped:
            return
        if not is_well_formed(packet):
            self.malformed += 1
            return
        head, number, acknowledged, credit = HEAD.unpack_from(packet)
        if not (
            self._receiver.is_possible(number) and self._sender.is_possible(acknowledged, credit)
        ):
            self._has_stopped = True
            return
        if self._sender.hear(acknowledged, credit, has_gap=bool(head & GAP)):
            self._silent = 0
        if head & ASK:
            self._must_tell = True
        if head & KIND != STATUS:
            self._receive_numbered(head & KIND, number, packet)

    def tick(self) -> None:
        """Send reports that are due, and send packets again that were not acknowledged."""
        if self._has_stopped:
            return
        self._told_gap = self._told_duplicate = False
        if self._told != self._receiver.progress:
            self._must_tell = True
        if not self._sender.is_waiting:
            return
        self._silent += 1
        if self._silent >= self._patience:
            self._has_stopped = True
        elif self._silent > 1 and not self._sender.repeat():
            # All packets have arrived. The report that they were taken may be lost.
            self._must_tell = True
            self._flags |= ASK

    def packets(self) -> list[bytes]:
        """The packets to publish now, in order. Each packet is returned once."""
        if self._has_stopped:
            return []
        due = self._sender.due()
        if not due and not self._must_tell:
            return []
        expected, credit = self._told = self._receiver.progress
        flags, self._flags, self._must_tell = self._flags, 0, False
        if not due:
            return [HEAD.pack(STATUS | flags, self._sender.next_number, expected, credit)]
        packets = []
        for number, (kind, payload) in due:
            packets.append(HEAD.pack(kind | flags, number, expected, credit) + payload)
            flags = 0
        return packets

    def _receive_numbered(self, kind: int, number: int, packet: bytes) -> None:
        if number == self._receiver.expected:
            self._told_gap = False
            if not self._receiver.accept(kind, packet):
                self._has_stopped = True
            elif kind == END:
                self._must_tell = True
        elif number < self._receiver.expected:
            # Our acknowledgement was lost, or the bus has doubled the packet.
            if not self._told_duplicate:
                self._told_duplicate = self._must_tell = True
        elif not self._told_gap:
            self._told_gap = self._must_tell = True
            self._flags |= GAP
