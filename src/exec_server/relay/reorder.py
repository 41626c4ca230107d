"""Puts encrypted frames back in sequence, within a bounded window."""

from __future__ import annotations

from collections.abc import Sequence

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits


class Reorder:
    """Releases the payloads of one direction of a stream strictly by their numbers, from 0.

    A repeated number is dropped unread: the first copy counts.
    """

    __slots__ = ("_held", "_held_bytes", "_limits", "_next")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._next = 0
        self._held: dict[int, bytes] = {}
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    @property
    def next_seq(self) -> int | None:
        """The number of the frame that can be released at once; None if frames are held."""
        return None if self._held else self._next

    def release_next(self) -> None:
        """The frame *next_seq* has come, and is released."""
        self._next += 1

    def receive(self, seq: int, payload: bytes | memoryview) -> Sequence[bytes | memoryview]:
        """Return the payloads that can be released now, perhaps none.

        Raises RelayError if *seq* is too far ahead, or too many bytes are held.
        """
        if seq == self._next and not self._held:
            self._next += 1
            return (payload,)
        if seq < self._next or seq in self._held:
            return ()
        if seq == self._next:
            return self._release(payload)
        self._hold(seq, payload)
        return ()

    def _hold(self, seq: int, payload: bytes | memoryview) -> None:
        if seq - self._next > self._limits.relay_reorder_frames:
            raise RelayError(f"frame {seq} came while {self._next} is missing")
        if self._held_bytes + len(payload) > self._limits.relay_reorder_bytes:
            raise RelayError(f"too many bytes wait for frame {self._next}")
        self._held[seq] = bytes(payload)
        self._held_bytes += len(payload)

    def _release(self, first: bytes | memoryview) -> list[bytes | memoryview]:
        ready = [first]
        self._next += 1
        while (payload := self._held.pop(self._next, None)) is not None:
            self._held_bytes -= len(payload)
            self._next += 1
            ready.append(payload)
        return ready
