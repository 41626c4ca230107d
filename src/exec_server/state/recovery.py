"""Merge the answer to a recovery `process/read` into the order of a process's events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from exec_server.errors import ProcessFailed
from exec_server.protocol.process import ClosedEvent, ExitedEvent, OutputEvent, ReadResult
from exec_server.state.event_order import EventOrder, ProcessEvent


class Merged(NamedTuple):
    """The events that are due now, and how many before or between them are gone for good."""

    events: Sequence[ProcessEvent]
    gone: int


def merge(
    order: EventOrder, process_id: str, answer: ReadResult, *, may_skip: bool = False
) -> Merged:
    """Fill *order* with an answer that was read after its last released number.

    The answer covers every number up to its `nextSeq`. A chunk has its own number and the close has
    the last one; the exit, which has no number in the answer, takes the number that is left. Events
    with higher numbers are pushed and do not concern this function.

    Raises ProcessFailed, and changes nothing, when the answer contradicts itself or when events
    that it should contain are no longer retained; with *may_skip* such events are passed over
    instead.
    """
    lost = answer.why_lost
    if answer.failure is not None and lost is None:
        raise ProcessFailed(answer.failure)
    target = answer.next_seq - 1
    if order.is_closed or target <= order.released:
        return Merged((), 0)
    found = _numbered(process_id, answer, target)
    holes = [
        seq
        for seq in range(order.released + 1, target + 1)
        if seq not in found and seq not in order.waiting
    ]
    if answer.exited:
        if answer.exit_code is None and lost is None:
            raise ProcessFailed("the process has exited without a status")
        if order.has_exit:
            _note_denial(order, answer)
        elif holes and (len(holes) == 1 or not may_skip):
            seq = holes.pop(0)
            found[seq] = ExitedEvent(
                process_id, seq, answer.exit_code, answer.sandbox_denied, lost or UNSET
            )
    if holes and not may_skip:
        raise ProcessFailed(_no_longer_retained(holes, answer))
    return Merged(order.fill(found, holes), len(holes))


def _numbered(process_id: str, answer: ReadResult, target: int) -> dict[int, ProcessEvent]:
    """The events that have a number in the answer itself."""
    found: dict[int, ProcessEvent] = {}
    for chunk in answer.chunks:
        if chunk.seq > target:
            raise ProcessFailed(f"chunk {chunk.seq} is beyond the last number {target}")
        if chunk.seq == target and answer.closed:
            raise ProcessFailed(f"chunk {chunk.seq} has the number of the close")
        found[chunk.seq] = OutputEvent(process_id, chunk.seq, chunk.stream, chunk.chunk)
    if answer.closed:
        found[target] = ClosedEvent(process_id, target)
    return found


def _note_denial(order: EventOrder, answer: ReadResult) -> None:
    """Copy the answer's `sandboxDenied` to an exit that waits; the pushed event may lack it."""
    for event in order.waiting.values():
        if isinstance(event, ExitedEvent):
            event.sandbox_denied = event.sandbox_denied or answer.sandbox_denied


def _no_longer_retained(holes: Sequence[int], answer: ReadResult) -> str:
    text = f"process events are no longer retained: {len(holes)} are missing from {holes[0]} on"
    if isinstance(answer.dropped_bytes, int):
        text += f", and {answer.dropped_bytes} bytes of output were discarded"
    return text
