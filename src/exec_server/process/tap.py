"""A tap: sees what happens to a process, beside the session that owns it."""

from __future__ import annotations

from typing import Protocol

from exec_server.protocol.process import Stream


class Tap(Protocol):
    """What watches a process: a model of its screen, a viewer, a recording.

    A tap must neither wait nor fail, and takes no part in flow control. Add it to `Child.taps`.
    """

    def output(self, seq: int, stream: Stream, data: bytes) -> None:
        """The process has printed *data*, whose number is *seq*."""

    def resized(self, rows: int, cols: int) -> None:
        """Its terminal has a new size."""

    def driven(self, name: str, kind: str) -> None:
        """Another participant types now: a person or an agent of that name."""

    def exited(self, seq: int) -> None:
        """It has exited or is lost; the facts are in the `Child`. Output may still follow."""

    def closed(self) -> None:
        """Nothing follows: all output was told, or the process was abandoned."""
