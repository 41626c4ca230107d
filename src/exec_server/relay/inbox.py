"""Messages of a stream whose reader is behind, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from exec_server.errors import RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits


class Inbox:
    """Lets messages through, or keeps them while its reader pauses.

    Streams share their socket, so it is read on; a reader that stays behind loses its stream.
    """

    __slots__ = ("_held", "_held_bytes", "_is_paused", "_limits")

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._is_paused = False
        self._held: list[bytes] = []
        self._held_bytes = 0

    def receive(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """The messages to deliver now; RelayError when too much waits."""
        if not self._is_paused:
            return messages
        for message in messages:
            self._hold(message)
        return ()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> Sequence[bytes]:
        """What has come meanwhile."""
        self._is_paused = False
        held, self._held, self._held_bytes = self._held, [], 0
        return held

    def _hold(self, message: bytes) -> None:
        limits = self._limits
        self._held_bytes += len(message)
        # One message may be as large as it likes.
        if self._held and (
            len(self._held) >= limits.backlog_messages or self._held_bytes > limits.backlog_bytes
        ):
            raise RelayError("the reader of the stream is too far behind")
        self._held.append(message)
