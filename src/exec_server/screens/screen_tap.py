"""One process that has a model: its output goes to the host, answers to queries come back."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

from exec_server.process.child import Child
from exec_server.process.durable.stored_screen import StoredScreen
from exec_server.protocol.process import Stream
from exec_server.screens import host_messages as messages
from exec_server.screens.host_link import HostLink
from exec_server.screens.host_messages import PART_BYTES

# Output that comes this soon after the last packet waits for more, unless a wait needs it.
_BATCH_SECONDS = 0.001
# So much of it by then is a flood, of which more is collected: each packet wakes the host, which
# costs the program, the server and the client more of two cores than the work of the host does.
_FLOOD_BYTES, _FLOOD_BATCH_BYTES, _FLOOD_SECONDS = 16 * 1024, 256 * 1024, 0.01
# A program that waits for the answer to a query prints nothing behind it, so the query is in the
# last bytes. Everything else but a colour, or the beginning of one, is taken for a query.
_LAST_BYTES = 64
_QUERY = re.compile(rb"\x05|\x1b(?!\[[0-9;:]*(?:m|\Z))")


class ScreenDump(NamedTuple):
    """Bytes that paint both screens of a terminal."""

    data: bytes
    # The number of the last output in it.
    seq: int
    rows: int
    columns: int
    version: int
    # True if output was missed.
    is_inexact: bool


class ScreenTap:
    """Feeds the model of *child*; see `Tap`.

    Output is taken from the log of the process whenever the host has room, so a host that is slow
    holds nothing up, and nothing is kept twice. What has left the log by then is missed.
    """

    def __init__(
        self, child: Child, number: int, *, answers_all: bool, on_closed: Callable[[], None]
    ) -> None:
        self.child = child
        self.number = number
        self.rebuilt = -1
        # The waits that run, by their calls, with the version that they begin after.
        self.afters: dict[int, int] = {}
        self._on_closed = on_closed
        self._link: HostLink | None = None
        # Everything up to this number was sent.
        self._cursor = 0
        self._sizes_sent = 0
        # Queries up to this number were not for the model, or it has answered them.
        self._replayed = 0 if answers_all else child.log.next_seq - 1
        # The last dump that the host has left here.
        self.checkpoint: messages.Checkpoint | None = None
        self._stored = stored = child.stored_screen
        if stored is not None:
            # A damaged file must not silence the answers to what follows.
            answered = min(stored.answered, child.log.next_seq - 1)
            self._replayed = max(self._replayed, answered)
            self.checkpoint = self._needed_checkpoint(stored)
        self._exit: int | None = None
        self._is_exit_sent = False
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        # Held while the host is asked what it shows.
        self.asking = asyncio.Lock()
        # How many waits need each output at once.
        self.waits = 0
        # Output that follows other output very soon is collected.
        self._loop = asyncio.get_running_loop()
        self._batch: list[tuple[int, bytes]] = []
        self._batch_seq = self._batch_bytes = 0
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        if child.state != "running":
            self._exit = child.log.next_seq - 1

    # What happens to the process.

    def output(self, seq: int, stream: Stream, data: bytes) -> None:
        link = self._link
        if link is None or not link.has_room:
            # It is in the log.
            self._batch.clear()
            return
        before = self._batch_seq if self._batch else self._cursor
        has_size = self._sizes_sent == self.child.sizes_dropped + len(self.child.sizes)
        if seq != before + 1 or not has_size or len(data) > PART_BYTES:
            self.pump()
            return
        if not self._batch:
            self._batch_bytes = 0
        self._batch.append((seq, data))
        self._batch_seq = seq
        self._batch_bytes += len(data)
        if self.waits or self._batch_bytes > _FLOOD_BATCH_BYTES or _may_ask(data):
            self._send_batch(link)
        elif self._timer is None:
            if self._loop.time() - self._sent_at > _BATCH_SECONDS:
                self._send_batch(link)
            else:
                self._timer = self._loop.call_later(_BATCH_SECONDS, self._send_soon)

    def _send_soon(self) -> None:
        if self._batch and self._batch_bytes > _FLOOD_BYTES and not self.waits:
            self._timer = self._loop.call_later(_FLOOD_SECONDS, self._send_late)
        else:
            self._send_late()

    def _send_late(self) -> None:
        self._timer = None
        self.pump()

    def _send_batch(self, link: HostLink) -> None:
        batch, self._batch = self._batch, []
        for seq, data in _packets(batch):
            if not link.has_room or seq <= self._cursor:
                # It is in the log, or was sent.
                return
            self._cursor = seq
            self._sent_at = self._loop.time()
            link.send(messages.Feed(self.number, seq, data))

    def resized(self, rows: int, cols: int) -> None:
        self.pump()

    def driven(self, name: str, kind: str) -> None:
        """It does not matter for the screen who types."""

    def exited(self, seq: int) -> None:
        self._exit = seq
        self.pump()

    def closed(self) -> None:
        self.pump()
        if self._timer is not None:
            self._timer.cancel()
        self._on_closed()

    # The model.

    def open(self, link: HostLink) -> None:
        """Make the model on a host, and feed it with what is known."""
        self._link = link
        self._batch.clear()
        self.rebuilt += 1
        checkpoint = self.checkpoint
        self._replayed = max(self._replayed, self._cursor)
        self._cursor = 0 if checkpoint is None else checkpoint.seq
        self._is_exit_sent = False
        sizes = self.child.sizes
        index = max(1, sum(size.seq <= self._cursor for size in sizes)) - 1
        self._sizes_sent = self.child.sizes_dropped + index + 1
        size = sizes[index]
        wanted = tuple(self.afters.values())
        link.send(messages.OpenModel(self.number, size.cols, size.rows, self.rebuilt, wanted))
        self._send_size(link, index)
        if checkpoint is not None:
            link.send(messages.Feed(self.number, checkpoint.seq, checkpoint.dump, True))
        self._tell_missed(link)
        self.pump()

    def _tell_missed(self, link: HostLink) -> None:
        """Say that output is missing if none of it is left; otherwise the first page says so."""
        log = self.child.log
        if not log.has_after(self._cursor):
            page = log.after(self._cursor, max_bytes=1)
            if page.dropped_bytes is not None:
                self._cursor = log.next_seq - 1
                link.send(messages.Miss(self.number, self._cursor))

    def is_open_on(self, link: HostLink) -> bool:
        return self._link is link

    def _send_size(self, link: HostLink, index: int) -> None:
        size = self.child.sizes[index]
        message = messages.Size(self.number, size.cols, size.rows, self._sizes_sent - 1)
        link.send(message)

    def pump(self) -> None:
        """Send what the host has not got, while it has room."""
        link = self._link
        if link is not None:
            self._send_batch(link)
        while link is not None and link.has_room and self._step(link):
            pass
        self._settle()

    def _step(self, link: HostLink) -> bool:
        """Send one packet; False if there is nothing to send."""
        sizes, log = self.child.sizes, self.child.log
        index = max(1, self._sizes_sent - self.child.sizes_dropped)
        upcoming = sizes[index] if index < len(sizes) else None
        has_output = log.has_after(self._cursor)
        if upcoming is not None and (upcoming.seq <= self._cursor or not has_output):
            self._sizes_sent = self.child.sizes_dropped + index + 1
            self._send_size(link, index)
            return True
        if has_output:
            self._send_output(link, None if upcoming is None else upcoming.seq)
            return True
        if self._exit is not None and not self._is_exit_sent:
            self._is_exit_sent = True
            self._cursor = max(self._cursor, self._exit)
            link.send(messages.Exit(self.number, self._exit, self.child.exit_code))
            return True
        return False

    def _send_output(self, link: HostLink, before: int | None) -> None:
        page = self.child.log.after(self._cursor, max_bytes=PART_BYTES)
        chunks = page.chunks
        if page.dropped_bytes is not None:
            link.send(messages.Miss(self.number, chunks[0].seq - 1))
        if before is not None and chunks[0].seq <= before:
            chunks = [chunk for chunk in chunks if chunk.seq <= before]
        # Queries that were answered are told apart from new ones.
        if chunks[0].seq <= self._replayed:
            chunks = [chunk for chunk in chunks if chunk.seq <= self._replayed]
        seq = chunks[-1].seq
        data = b"".join(chunk.data for chunk in chunks)
        is_replay = seq <= self._replayed
        for at in range(0, len(data), PART_BYTES):
            part = data[at : at + PART_BYTES]
            is_partial = at + PART_BYTES < len(data)
            link.send(messages.Feed(self.number, seq, part, is_replay, is_partial))
        self._cursor = seq

    async def caught_up(self) -> None:
        """Wait until all output so far was sent."""
        newest = self.child.log.next_seq - 1
        if self._is_behind(newest):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._behind.append((newest, waiting))
            self.pump()
            await waiting

    def _is_behind(self, seq: int) -> bool:
        return self._cursor < seq and self.child.log.has_after(self._cursor)

    def _settle(self) -> None:
        if self._behind:
            for seq, waiting in self._behind:
                if not self._is_behind(seq) and not waiting.done():
                    waiting.set_result(None)
            self._behind = [each for each in self._behind if not each[1].done()]

    def lost(self) -> None:
        """The host has ended; its model is made again on the next one."""
        self._link = None
        for _, waiting in self._behind:
            if not waiting.done():
                waiting.set_result(None)
        self._behind = []

    def checkpointed(self, checkpoint: messages.Checkpoint) -> None:
        self.checkpoint = checkpoint
        if self._stored is not None:
            total = self.child.log.total_bytes
            self._stored.add_checkpoint(checkpoint.seq, checkpoint.dump, total)

    def _needed_checkpoint(self, stored: StoredScreen) -> messages.Checkpoint | None:
        """The checkpoint of an earlier server, if the output before it is not retained."""
        if self.child.log.after(0, max_bytes=1).dropped_bytes is None:
            return None
        found = stored.checkpoint()
        if found is None or found[0] >= self.child.log.next_seq:
            return None
        return messages.Checkpoint(self.number, *found)

    def replied(self, reply: messages.Reply) -> None:
        """The model answers a query: type the answer."""
        child = self.child
        if child.state != "running" or child.stdin is None or child.stdin.is_closing:
            return
        if self._stored is not None:
            self._stored.answered = reply.seq
        accepted = child.accept_input(reply.data, f"screen-{uuid.uuid4()}")
        if accepted is not None:
            accepted.add_done_callback(_ignore)


def _may_ask(data: bytes) -> bool:
    """True if *data* ends with something that the model may have to answer."""
    return _QUERY.search(data[-_LAST_BYTES:]) is not None


def _packets(batch: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """The output of *batch* in packets, each with the number of its last output."""
    collected: list[bytes] = []
    size, last = 0, 0
    for seq, data in batch:
        if collected and size + len(data) > PART_BYTES:
            yield last, b"".join(collected)
            collected, size = [], 0
        collected.append(data)
        size, last = size + len(data), seq
    if collected:
        yield last, b"".join(collected)


def _ignore(accepted: asyncio.Future[None]) -> None:
    if not accepted.cancelled():
        accepted.exception()
