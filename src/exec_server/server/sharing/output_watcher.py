"""The output of a process on its way to one watcher, which holds up neither it nor others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import UNSET

from exec_server.process.child import Child
from exec_server.process.process_answers import read_result
from exec_server.protocol import process, sharing
from exec_server.protocol.base64 import Blob
from exec_server.screens.screen_tap import ScreenDump
from exec_server.server.session import Session
from exec_server.state.output_log import Chunk, Page

# What may be under way to a watcher that has not asked for another size.
DEFAULT_WINDOW = 256 * 1024
_LARGEST_WINDOW = 4 << 20
# The picture of a screen that is larger than this is sent all the same, once per acknowledgement.
_CHUNK_COST = 64


# Paints the screen of a process; None if there is no model of it.
Paint = Callable[[Child], Awaitable[ScreenDump | None]]


def picture_of(dump: ScreenDump) -> sharing.ScreenPicture:
    return sharing.ScreenPicture(Blob(dump.data), dump.seq, dump.rows, dump.columns, dump.version)


class Watcher:
    """Sends the events of *child* to *session*; a `Tap` of the process.

    Output is sent as it comes while the window has room. When it has none, nothing is queued: later
    the watcher gets the retained output, or a new picture of a terminal's screen if it is too far
    behind.
    """

    def __init__(
        self,
        child: Child,
        session: Session,
        watch_id: str,
        *,
        run: int = 0,
        window: int | None,
        paint: Paint | None,
        after_seq: int,
    ) -> None:
        self.child = child
        self._session = session
        self._event = partial(sharing.WatchedEvent, watch_id, run=run)
        self._window = min(window or DEFAULT_WINDOW, _LARGEST_WINDOW)
        self._paint = paint
        # The number of the last output that was sent.
        self._cursor = after_seq
        # The number and cost of each event that was not acknowledged, and the sum of the costs.
        self._under_way: deque[tuple[int, int]] = deque()
        self._under_way_cost = 0
        # True while all output so far was sent.
        self._is_live = False
        self._has_begun = False
        self._painting: asyncio.Task[None] | None = None
        # The output that was not sent when the process was closed.
        self._rest: deque[Chunk] = deque()
        self._dropped = 0
        self._sent_bytes = 0
        self._has_told_exit = False
        self._has_told_close = False
        self._is_closed = child.state == "closed"
        self._is_stopped = False

    def begin(self) -> None:
        """The answer to the request has left: send what there is."""
        self._has_begun = True
        self.catch_up()

    def stop(self) -> None:
        """Send nothing any more."""
        self._is_stopped = True
        self.child.taps = tuple(tap for tap in self.child.taps if tap is not self)
        if self._painting is not None:
            self._painting.cancel()

    # The process. These must not fail, see `Tap`.

    def output(self, seq: int, stream: process.Stream, data: bytes) -> None:
        if self._is_live and self._has_room:
            self._send_output(Chunk(seq, stream, data))
        else:
            self._is_live = False

    def resized(self, rows: int, cols: int) -> None:
        if self._is_live:
            seq = self.child.log.next_seq - 1
            self._send(self._event(seq, size=(rows, cols)))

    def driven(self, name: str, kind: str) -> None:
        """Those who look on are told in an event of its own."""

    def exited(self, seq: int) -> None:
        if self._is_live:
            self._tell_exit()

    def closed(self) -> None:
        self._is_closed = True
        if not self._is_live and not self.child.is_durable:
            # The log may be gone when there is room.
            page = self.child.log.after(self._cursor)
            self._tell_gap(page)
            self._rest.extend(page.chunks)
        self.catch_up()

    # The watcher.

    @property
    def _has_room(self) -> bool:
        is_behind = self._under_way_cost >= self._window or self._session.is_writing_paused
        return self._has_begun and not is_behind and not self._is_stopped

    def acknowledge(self, seq: int | None) -> None:
        """All events up to *seq* were taken; None: there will be no acknowledgements."""
        if seq is None:
            self._window = _LARGEST_WINDOW
            seq = self._cursor
        while self._under_way and self._under_way[0][0] <= seq:
            self._under_way_cost -= self._under_way.popleft()[1]
        self.catch_up()

    def catch_up(self) -> None:
        """Send what was not sent, as far as there is room."""
        if self._is_live and not self._is_closed:
            return
        while self._has_room and self._painting is None:
            chunks = self._next_chunks()
            if not chunks:
                self._is_live = True
                self._tell_end()
                return
            if self.child.is_tty and self._paint is not None and self._is_far_behind(chunks):
                painting = self._paint_again(self._paint)
                self._painting = asyncio.get_running_loop().create_task(painting)
                return
            for chunk in chunks:
                self._send_output(chunk)

    def _is_far_behind(self, chunks: list[Chunk]) -> bool:
        """True if more output waits than the window holds."""
        return not self._rest and self.child.log.has_after(chunks[-1].seq)

    def _next_chunks(self) -> list[Chunk]:
        if self._rest:
            return [self._rest.popleft()]
        room = max(1, self._window - self._under_way_cost)
        page = self.child.log.after(self._cursor, max_bytes=room)
        self._tell_gap(page)
        return page.chunks

    def _tell_gap(self, page: Page) -> None:
        """Tell how much is missing before *page*, if some of it could not be retained."""
        if page.chunks and page.dropped_bytes is not None and page.dropped_bytes > self._dropped:
            # The log counts all that it has dropped so far.
            missing = page.dropped_bytes - max(self._dropped, self._sent_bytes)
            self._dropped = page.dropped_bytes
            seq = page.chunks[0].seq - 1
            self._send(self._event(seq, dropped_bytes=max(0, missing)))

    async def _paint_again(self, paint: Paint) -> None:
        try:
            dump = await paint(self.child)
        finally:
            self._painting = None
        if self._is_stopped:
            return
        if dump is None:
            # Without a model there is only the output itself.
            self._send_all_that_fits()
        elif dump.seq > self._cursor:
            self._cursor = dump.seq
            event = self._event(dump.seq, screen=picture_of(dump))
            self._count(dump.seq, len(dump.data))
            self._send(event)
        self.catch_up()

    def _send_all_that_fits(self) -> None:
        for chunk in self._next_chunks():
            self._send_output(chunk)

    def _send_output(self, chunk: Chunk) -> None:
        self._cursor = chunk.seq
        self._sent_bytes += len(chunk.data)
        self._count(chunk.seq, len(chunk.data))
        event = self._event(chunk.seq, stream=chunk.stream, chunk=Blob(chunk.data))
        self._send(event)

    def _count(self, seq: int, size: int) -> None:
        self._under_way.append((seq, size + _CHUNK_COST))
        self._under_way_cost += size + _CHUNK_COST

    def _tell_end(self) -> None:
        if self.child.state != "running":
            self._tell_exit()
        if self._is_closed and not self._has_told_close:
            self._has_told_close = True
            seq = self.child.log.next_seq - 1
            self._send(self._event(seq, closed=True))

    def _tell_exit(self) -> None:
        if self._has_told_exit:
            return
        self._has_told_exit = True
        child = self.child
        facts = read_result(child, child.log.next_seq, 1)
        self._send(
            self._event(
                child.log.next_seq - 1,
                exited=True,
                exit_code=None if facts.why_lost is not None else facts.exit_code,
                signal=facts.signal,
                lost=facts.why_lost or UNSET,
                sandbox_denied=facts.sandbox_denied,
                end=facts.end,
                usage=facts.usage,
            )
        )

    def _send(self, event: sharing.WatchedEvent) -> None:
        self._session.notify(sharing.WATCHED, event)
