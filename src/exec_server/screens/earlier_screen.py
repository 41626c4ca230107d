"""What a terminal showed before: a model is made for it from retained output, and dropped again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from exec_server.process.child import Child
from exec_server.screens import host_messages as messages
from exec_server.screens.host_link import HostLink
from exec_server.screens.host_messages import PART_BYTES

_EVENTS_AT_END = 2


class EarlierScreen:
    """The model *number* of the terminal of *child* after the output with the number *at*.

    *room* waits until the host can take more, so that much output fills no memory.
    """

    def __init__(
        self,
        child: Child,
        number: int,
        at: int,
        *,
        checkpoint: messages.Checkpoint | None,
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._child = child
        self._number = number
        self._at = at
        usable = checkpoint is not None and checkpoint.seq <= at
        self._checkpoint = checkpoint if usable else None
        self._room = room

    async def open(self, link: HostLink) -> None:
        """Make it on a host; it has to be dropped."""
        checkpoint = self._checkpoint
        cursor = 0 if checkpoint is None else checkpoint.seq
        sizes = self._child.sizes
        next_size = max(1, sum(size.seq <= cursor for size in sizes))
        size = sizes[next_size - 1]
        link.send(messages.OpenModel(self._number, size.cols, size.rows))
        self._send_size(link, next_size - 1)
        if checkpoint is not None:
            link.send(messages.Feed(self._number, cursor, checkpoint.dump, True))
        while cursor < self._at and (chunks := self._after(link, cursor)):
            while next_size < len(sizes) and sizes[next_size].seq < chunks[0][0]:
                self._send_size(link, next_size)
                next_size += 1
            if next_size < len(sizes):
                before = sizes[next_size].seq
                chunks = [chunk for chunk in chunks if chunk[0] <= before]
            self._feed(link, chunks)
            cursor = chunks[-1][0]
            await self._room()
        while next_size < len(sizes) and sizes[next_size].seq < self._at:
            self._send_size(link, next_size)
            next_size += 1

    def _after(self, link: HostLink, cursor: int) -> list[tuple[int, bytes]]:
        """The next output with its numbers."""
        page = self._child.log.after(cursor, max_bytes=PART_BYTES)
        chunks = [(chunk.seq, chunk.data) for chunk in page.chunks if chunk.seq <= self._at]
        last = chunks[0][0] - 1 if chunks else self._at
        # What was acknowledged is freed at the end; the exit and the close have numbers, too.
        if page.dropped_bytes is not None or last - cursor > _EVENTS_AT_END:
            link.send(messages.Miss(self._number, last))
        return chunks

    def _feed(self, link: HostLink, chunks: list[tuple[int, bytes]]) -> None:
        """Its queries were answered when it was new, so it is a replay."""
        seq, data = chunks[-1][0], b"".join(data for _, data in chunks)
        for at in range(0, len(data), PART_BYTES):
            is_partial = at + PART_BYTES < len(data)
            part = data[at : at + PART_BYTES]
            link.send(messages.Feed(self._number, seq, part, True, is_partial))

    def _send_size(self, link: HostLink, index: int) -> None:
        size = self._child.sizes[index]
        resizes = self._child.sizes_dropped + index
        link.send(messages.Size(self._number, size.cols, size.rows, resizes))
