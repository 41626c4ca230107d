"""Which frames have arrived, on either side, as the older relay's `ack` and `ack_bits` tell it."""

from __future__ import annotations

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits

_ACK_BITS = 0xFFFF_FFFF


class ReceivedFrames:
    """The numbers of the frames that have come from the peer."""

    __slots__ = ("_limits", "_next", "_seen")

    def __init__(self, *, first: int = 0, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # The lowest number that has not come, and a bit for each one behind it.
        self._next = first
        self._seen = 0

    @property
    def ack(self) -> int:
        """The highest number up to which all have come; 0 also when none has."""
        return max(self._next - 1, 0)

    @property
    def ack_bits(self) -> int:
        """Bit i tells whether ``ack + 1 + i`` has come."""
        # While nothing has come in a row, an ack of 0 would claim the first frame.
        return self._seen << 1 & _ACK_BITS if self._next else 0

    def note(self, seq: int) -> bool:
        """Whether *seq* is new; RelayError when it is so far ahead that repeats would go unseen."""
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
    """The numbers of the frames we have sent, and what the peer said about them."""

    __slots__ = ("_beyond", "_confirmed", "next_seq")

    def __init__(self) -> None:
        self.next_seq = 0
        # How many from 0 on have arrived, and how many behind the next.
        self._confirmed = 0
        self._beyond = 0

    @property
    def unacknowledged(self) -> int:
        """How many frames the peer has not confirmed, as far as we know."""
        return self.next_seq - self._confirmed - self._beyond

    def read(self, ack: int, ack_bits: int) -> None:
        """Take over what a frame of the peer says; what cannot be true or is old is passed over."""
        if not ack and not ack_bits:
            # Not told apart from a peer that does not acknowledge.
            return
        said = ack + 1, ack_bits.bit_count()
        if ack + ack_bits.bit_length() < self.next_seq:
            self._confirmed, self._beyond = max(said, (self._confirmed, self._beyond))
