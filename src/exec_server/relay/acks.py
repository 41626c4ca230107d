"""The acknowledgements of the older relay: which frames have arrived, on either side."""

from __future__ import annotations

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits

_ACK_BITS = 0xFFFF_FFFF


class ReceivedFrames:
    """The numbers of the frames that have come from the peer."""

    __slots__ = ("_limits", "_next", "_seen")

    def __init__(self, *, first: int = 0, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # The lowest number that is missing, and a bit for each number after it.
        self._next = first
        self._seen = 0

    @property
    def ack(self) -> int:
        """The highest number up to which all frames have arrived; 0 also if none has."""
        return max(self._next - 1, 0)

    @property
    def ack_bits(self) -> int:
        """A bit field: bit i is set if frame ``ack + 1 + i`` has arrived."""
        # If frame 0 is missing, an ack of 0 would claim that it has arrived.
        return self._seen << 1 & _ACK_BITS if self._next else 0

    def note(self, seq: int) -> bool:
        """Record *seq*, and return True if it is new.

        Raises RelayError if it is so far ahead that repeated frames would not be recognised.
        """
        ahead = seq - self._next
        if ahead < 0 or (ahead and self._seen >> ahead - 1 & 1):
            return False
        if ahead > self._limits.relay_seen_frames:
            raise RelayError(f"frame {seq} came while {self._next} is missing")
        if ahead:
            self._seen |= 1 << ahead - 1
        else:
            self._advance()
        return True

    def _advance(self) -> None:
        self._next += 1
        while self._seen & 1:
            self._seen >>= 1
            self._next += 1
        self._seen >>= 1


class SentFrames:
    """The numbers of the frames that we have sent, and which of them the peer has confirmed."""

    __slots__ = ("_beyond", "_confirmed", "next_seq")

    def __init__(self) -> None:
        self.next_seq = 0
        # The number of frames confirmed without a gap, and of those confirmed after the gap.
        self._confirmed = 0
        self._beyond = 0

    @property
    def unacknowledged(self) -> int:
        """The number of frames that the peer has not confirmed, as far as we know."""
        return self.next_seq - self._confirmed - self._beyond

    def read(self, ack: int, ack_bits: int) -> None:
        """Take the acknowledgement of a frame. One that is old or impossible is ignored."""
        if not ack and not ack_bits:
            # A peer that does not acknowledge sends the same.
            return
        said = ack + 1, ack_bits.bit_count()
        if ack + ack_bits.bit_length() < self.next_seq:
            self._confirmed, self._beyond = max(said, (self._confirmed, self._beyond))
