"""The messages that wait for a slow reader of one stream; their number and size are bounded."""

from __future__ import annotations

from collections.abc import Sequence

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits


class Inbox:
    """Passes messages on, or keeps them while the reader has paused.

    All streams share one socket, so reading from it goes on. A reader that is too slow loses its
    stream.
    """

    __slots__ = ("_held", "_held_bytes", "_is_paused", "_limits")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._is_paused = False
        self._held: list[bytes] = []
        self._held_bytes = 0

    def receive(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return the messages to deliver now. Raises RelayError if too many are kept."""
        if not self._is_paused:
            return messages
        for message in messages:
            self._hold(message)
        return ()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> Sequence[bytes]:
        """Return the messages that were kept."""
        self._is_paused = False
        held, self._held, self._held_bytes = self._held, [], 0
        return held

    def _hold(self, message: bytes) -> None:
        limits = self._limits
        self._held_bytes += len(message)
        # A single message is kept whatever its size.
        if self._held and (
            len(self._held) >= limits.backlog_messages or self._held_bytes > limits.backlog_bytes
        ):
            raise RelayError("the reader of the stream is too far behind")
        self._held.append(message)
