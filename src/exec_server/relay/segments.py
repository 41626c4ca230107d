"""Messages of the older relay that arrive in several frames."""

from __future__ import annotations

from typing import Any

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.frame import Data
from exec_server.relay.records import Join


class Stitcher:
    """Joins the segments of messages; their numbers are contiguous, their order may be any."""

    __slots__ = ("_bytes", "_count", "_limits", "_partial", "join")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        # Keyed by the number of the first segment: the count of segments, and those received.
        self._partial: dict[int, tuple[int, dict[int, bytes]]] = {}
        self._count = 0
        self._bytes = 0
        self.join: Join = b"".join

    @property
    def held_bytes(self) -> int:
        return self._bytes

    def receive(self, data: Data) -> Any:
        """Return the message that *data* completes, or None. Raises RelayError at the limits."""
        if data.segment_count == 1:
            return bytes(data.payload)
        first = data.seq - data.segment_index
        if first < 0 or data.segment_count > self._limits.relay_segments:
            raise RelayError(f"a message in {data.segment_count} segments")
        count, segments = self._partial.setdefault(first, (data.segment_count, {}))
        if count != data.segment_count:
            raise RelayError("a message changes its number of segments")
        self._hold(segments, data)
        if len(segments) < count:
            return None
        return self._join(first)

    def _hold(self, segments: dict[int, bytes], data: Data) -> None:
        if data.segment_index in segments:
            return
        self._count += 1
        self._bytes += len(data.payload)
        if self._count > self._limits.relay_segments or self._bytes > self._limits.message_bytes:
            raise RelayError("too many unfinished messages")
        segments[data.segment_index] = bytes(data.payload)

    def _join(self, first: int) -> Any:
        count, segments = self._partial.pop(first)
        self._count -= count
        self._bytes -= sum(map(len, segments.values()))
        return self.join([segments[index] for index in range(count)])
