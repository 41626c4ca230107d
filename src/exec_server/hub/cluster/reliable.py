"""One end of a stream of messages between two nodes, over a bus that loses, doubles and reorders.

Nothing here waits or knows a clock. The owner publishes what `packets` returns, hands in what the
bus brings, and calls `tick` now and then while `needs_ticks`.

Each packet says how far its sender has got with the other direction: the number it expects next,
and how many bytes may have been sent to it so far. What was not acknowledged is sent again from the
first missing packet on. A packet counts with its header, so empty messages are bounded too.
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
    Incoming,
    Outgoing,
    is_well_formed,
)
from exec_server.limits import DEFAULT_LIMITS

# Who bounds its queue by what was taken has to hear of it long before a large window is used up.
_ANNOUNCE_BYTES = 128 * 1024


class Conduit:
    """Messages arrive once, in order and unchanged, or the conduit fails.

    *window* bounds the bytes on the way to the peer that it has not taken, *fragment* those of one
    packet, *longest* those of a message. After *patience* ticks at which something was owed by the
    peer and no progress was seen the conduit has failed. Both ends need the same *window*.

    An end is for both directions: who has ended, and whose peer knows it, is finished, though
    messages of the peer may still be on their way.
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
            raise ValueError("a conduit needs 0 < fragment <= window and patience > 0")
        # The header on top: one packet as long as the window has to fit.
        limit = window + HEADER_BYTES
        self._outgoing = Outgoing(fragment=fragment, limit=limit)
        self._incoming = Incoming(limit=limit, longest=longest)
        self._patience = patience
        self._announce = min(max(1, window // 4), _ANNOUNCE_BYTES)
        self._is_paused = False
        self._has_stopped = False
        # Ticks without progress of what we wait for.
        self._silent = 0
        # What the peer was told last, whether it has to be told now, and with which flags.
        self._told = self._incoming.progress
        self._must_tell = False
        self._flags = 0
        # Told once, and not again for each packet of a burst.
        self._told_gap = False
        self._told_duplicate = False
        self.malformed = 0

    @property
    def needs_ticks(self) -> bool:
        """Whether anything is owed, by either side."""
        return not self._has_stopped and (
            self._outgoing.is_waiting
            or self._told != self._incoming.progress
            # Whoever was silenced has to be heard again.
            or self._told_gap
            or self._told_duplicate
        )

    @property
    def ended(self) -> tuple[int, str] | None:
        """The peer's end, once all messages before it were taken."""
        return None if self._incoming.has_messages else self._incoming.end

    @property
    def is_finished(self) -> bool:
        """Whether we ended, and the peer knows or has ended too: the owner may forget us."""
        if not self._outgoing.is_ended:
            return False
        has_told_end = self._incoming.end is not None and self._told[0] == self._incoming.expected
        return has_told_end or self._outgoing.is_end_acknowledged

    @property
    def has_failed(self) -> bool:
        """Whether patience ran out, or the peer broke the protocol, before we were finished."""
        return self._has_stopped and not self.is_finished

    def send(self, data: bytes) -> None:
        """Queue a message; nothing happens after the end or a failure."""
        if not self._has_stopped:
            self._outgoing.queue(data)

    def discard(self) -> int:
        """Forget the queued messages of which nothing was sent yet; how many they were."""
        count = self._outgoing.discard()
        if not self._outgoing.is_waiting:
            self._silent = 0
        return count

    def end(self, code: int, reason: str) -> None:
        """Tell the peer, after everything queued, that no more will come."""
        if not self._has_stopped:
            self._outgoing.finish(code, reason)

    def pause(self) -> None:
        """Take no messages: the peer may fill its window, and then waits."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def messages(self) -> list[bytes]:
        """The messages that may be delivered now; taking them lets the peer send more."""
        if self._is_paused:
            return []
        found = self._incoming.take()
        if self._incoming.credit - self._told[1] >= self._announce:
            self._must_tell = True
        return found

    def taken(self) -> int:
        """How many of our messages the peer has taken since the last call."""
        count, self._outgoing.taken = self._outgoing.taken, 0
        return count

    def receive(self, packet: bytes) -> None:
        """Look at a packet from the bus; one that is none of ours is counted and ignored."""
        if self._has_stopped:
            return
        if not is_well_formed(packet):
            self.malformed += 1
            return
        head, number, acknowledged, credit = HEAD.unpack_from(packet)
        if not (
            self._incoming.is_possible(number) and self._outgoing.is_possible(acknowledged, credit)
        ):
            self._has_stopped = True
            return
        if self._outgoing.hear(acknowledged, credit, has_gap=bool(head & GAP)):
            self._silent = 0
        if head & ASK:
            self._must_tell = True
        if head & KIND != STATUS:
            self._receive_numbered(head & KIND, number, packet)

    def tick(self) -> None:
        """Some time has passed: say what was not said, and repeat what had no effect."""
        if self._has_stopped:
            return
        self._told_gap = self._told_duplicate = False
        if self._told != self._incoming.progress:
            self._must_tell = True
        if not self._outgoing.is_waiting:
            return
        self._silent += 1
        if self._silent >= self._patience:
            self._has_stopped = True
        elif self._silent > 1 and not self._outgoing.repeat():
            # All has arrived; news of what was taken may be lost.
            self._must_tell = True
            self._flags |= ASK

    def packets(self) -> list[bytes]:
        """What has to be published now, in order. Another call returns only what is new."""
        if self._has_stopped:
            return []
        due = self._outgoing.due()
        if not due and not self._must_tell:
            return []
        expected, credit = self._told = self._incoming.progress
        flags, self._flags, self._must_tell = self._flags, 0, False
        if not due:
            return [HEAD.pack(STATUS | flags, self._outgoing.next_number, expected, credit)]
        packets = []
        for number, (kind, payload) in due:
            packets.append(HEAD.pack(kind | flags, number, expected, credit) + payload)
            flags = 0
        return packets

    def _receive_numbered(self, kind: int, number: int, packet: bytes) -> None:
        if number == self._incoming.expected:
            self._told_gap = False
            if not self._incoming.accept(kind, packet):
                self._has_stopped = True
            elif kind == END:
                self._must_tell = True
        elif number < self._incoming.expected:
            # What we told was lost, or the bus doubles packets.
            if not self._told_duplicate:
                self._told_duplicate = self._must_tell = True
        elif not self._told_gap:
            self._told_gap = self._must_tell = True
            self._flags |= GAP
