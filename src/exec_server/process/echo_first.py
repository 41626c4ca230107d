"""Small input comes first: output in bulk rests for a moment after it, and so do large answers.

A keystroke and its echo take two turns of the event loop, and both the loop and the cores of the
machine are busy with the bulk output of other processes, or with blocks of files. So these rest for
a moment when small input is written to a process that is likely to answer. Between two rests they
have their turn, so that no client can stop the output of another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from exec_server.process.pump import OutputGate

# Input of up to this size is what a person types, or a small request to a program.
SMALL_INPUT = 1024
# The client of a flood is busy with what it has got for one or two milliseconds more. A person who
# types ten keys a second takes a twentieth of the time from bulk output.
_REST_SECONDS = 0.006
# The bytes of bulk output between two rests. They take about a millisecond.
BYTES_BETWEEN = 512 * 1024


class Typist(Protocol):
    """A process that small input was written to."""

    # Set to False if it gives no output for the length of a rest.
    answers_soon: bool


class _Waiter:
    """A task that waits for the end of a rest."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class EchoFirst:
    """Decides when bulk output rests; one for all processes of a server."""

    __slots__ = ("bytes_due", "gate", "on_small_input", "typist")

    def __init__(self) -> None:
        # Pumps of bulk output read while this gate is open.
        self.gate = OutputGate()
        # How much bulk output has its turn before the next rest.
        self.bytes_due = 1
        # The process whose answer is waited for; it takes its name away when it answers or ends.
        self.typist: Typist | None = None
        # Called when small input is written, if streams have to make way for it, too.
        self.on_small_input: Callable[[], None] | None = None

    def small_input(self, typist: Typist) -> None:
        """Small input is written to *typist*, which is likely to answer soon."""
        if self.on_small_input is not None:
            self.on_small_input()
        if self.bytes_due <= 0:
            self.typed(typist)
        else:
            # Bulk output rests at the end of its turn, if there is no answer until then.
            self.typist = typist

    def streams_make_way(self) -> None:
        if self.on_small_input is not None:
            self.on_small_input()

    def typed(self, typist: Typist) -> None:
        """Let bulk output rest, if it has had its turn."""
        if self.bytes_due <= 0 and self.gate.is_open:
            self.typist = typist
            self.gate.close()
            asyncio.get_running_loop().call_later(_REST_SECONDS, self._go_on)

    @property
    def is_resting(self) -> bool:
        return not self.gate.is_open

    def bulk_passed(self, size: int) -> None:
        """*size* bytes of bulk output have been read, or sent as a large answer."""
        self.bytes_due -= size
        if self.bytes_due <= 0 and self.typist is not None:
            self.typed(self.typist)

    async def rested(self) -> None:
        """Wait for the end of a rest."""
        if self.is_resting:
            waiter = _Waiter()
            self.gate.park(waiter)
            await waiter.future

    def _go_on(self) -> None:
        if self.typist is not None:
            self.typist.answers_soon = False
            self.typist = None
        self.bytes_due = BYTES_BETWEEN
        self.gate.open()
