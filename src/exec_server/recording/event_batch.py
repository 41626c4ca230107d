"""A batch of events for the writer, in which output that came almost at once is one event."""

from __future__ import annotations

from exec_server.recording.writer_messages import CastOutput, WriterEvent

_MOST_BYTES, _MOST_EVENTS = 1 << 20, 4096
# Output of one terminal within this time is one event of the recording, up to so many bytes.
_TOGETHER_SECONDS, _TOGETHER_BYTES = 0.01, 128 << 10


class EventBatch:
    """Collects events in their order."""

    def __init__(self) -> None:
        self._events: list[WriterEvent] = []
        self._output: list[bytes] = []
        self._bytes = 0
        self.is_full = False
        # Set at the end by the recorder: everything that it was given up to here is in it.
        self.put_bytes = 0
        # The last output: its terminal, its time, and where it begins.
        self._number = 0
        self._time = 0.0
        self._start = 0

    def add_output(self, number: int, time: float, data: bytes) -> None:
        if (
            number != self._number
            or time - self._time >= _TOGETHER_SECONDS
            or self._bytes + len(data) - self._start > _TOGETHER_BYTES
        ):
            self._seal()
            self._number, self._time, self._start = number, time, self._bytes
        self._output.append(data)
        self._bytes += len(data)
        if self._bytes >= _MOST_BYTES or len(self._output) >= _MOST_EVENTS:
            self.is_full = True

    def add(self, event: WriterEvent) -> None:
        self._seal()
        self._events.append(event)
        self.is_full |= len(self._events) >= _MOST_EVENTS

    @property
    def is_output_only(self) -> bool:
        return bool(self._output) and all(isinstance(each, CastOutput) for each in self._events)

    def sealed(self) -> tuple[list[WriterEvent], list[bytes]]:
        """The events, and the output that belongs to them."""
        self._seal()
        return self._events, self._output

    def _seal(self) -> None:
        if self._number:
            size = self._bytes - self._start
            self._events.append(CastOutput(self._number, self._time, size))
            self._number = 0
