"""Writes frames; what one read of a socket brings for another one leaves in one write."""

from __future__ import annotations

import os
from typing import Any

from exec_server.hub.relay.routing import Frame
from exec_server.transport.frame_headers import WHOLE_BINARY, frame_header
from exec_server.transport.gathered_writes import writelines_of

# Up to this size one copy is cheaper than another part of a vectored write.
JOIN_BYTES = 16 * 1024
# writev takes 1024 buffers at most.
_MOST_PARTS = 1024


class Corks:
    """Shared by the sockets of a node. While *is_holding*, their writers keep frames.

    The frames of a read may be views of the buffer that was read into, so `release` is called
    before the buffer is used again.
    """

    __slots__ = ("_writers", "is_holding")

    def __init__(self) -> None:
        self.is_holding = False
        self._writers: list[FrameWriter] = []

    def add(self, writer: FrameWriter) -> None:
        self._writers.append(writer)

    def release(self) -> None:
        self.is_holding = False
        if self._writers:
            writers, self._writers = self._writers, []
            for writer in writers:
                writer.push()


class FrameWriter:
    """Writes to *stream*, a transport; what its socket does not take at once is queued there."""

    __slots__ = ("_corked", "_corks", "_fd", "_queued_bytes", "_stream", "_writelines")

    def __init__(self, stream: Any, corks: Corks, *, is_secure: bool) -> None:
        self._stream = stream
        self._writelines = writelines_of(stream)
        self._queued_bytes = stream.get_write_buffer_size
        self._corks = corks
        # A plain socket does not encrypt, so frames are written straight to the descriptor.
        self._fd = -1 if is_secure else stream.get_extra_info("socket").fileno()
        # The parts of frames that the corks hold.
        self._corked: list[Frame] = []

    def write(self, data: Frame) -> None:
        """Write one frame, and its header with it: apart, it would wake the peer twice."""
        is_held = self._corks.is_holding
        if is_held and not self._corked:
            self._corks.add(self)
        size = len(data)
        header = frame_header(WHOLE_BINARY, size)
        if size <= JOIN_BYTES:
            self._corked.append(header + data)
        else:
            self._corked += (header, data)
        if not is_held:
            self.push()

    def push(self) -> None:
        """Write what was held."""
        parts, self._corked = self._corked, []
        if not parts or self._stream.is_closing():
            return
        try:
            self._write(parts if len(parts) <= _MOST_PARTS else [b"".join(parts)])
        except (OSError, MemoryError):
            # The reading side also learns of the end, and reports it once. A frame that is lost
            # ends the socket, and the sockets of others are written as well.
            self._stream.abort()

    def _write(self, parts: list[Frame]) -> None:
        sent = 0
        if self._fd >= 0 and not self._queued_bytes():
            try:
                sent = os.writev(self._fd, parts)
            except BlockingIOError:
                pass
        for index, part in enumerate(parts):
            if sent < len(part):
                # A view is valid only until the call ends.
                rest = bytes(memoryview(part)[sent:] if sent else part)
                self._writelines([rest, *map(bytes, parts[index + 1 :])])
                return
            sent -= len(part)
