"""A proxy between a client and a server that fails on command, or by schedule."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from tests.support.wire import PATIENCE

Direction = Literal["up", "down"]
Kind = Literal["reset", "close", "half-close", "half-open", "stall"]

_RESET = struct.pack("ii", 1, 0)


class Fault(NamedTuple):
    """What happens to a connection after so many bytes in one direction, inside a frame or not."""

    after: int
    direction: Direction = "down"
    kind: Kind = "reset"


class _Pair:
    """One client's connection and the one to the server that it stands for."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        fault: Fault | None,
    ) -> None:
        self.client = client
        self.server = server
        self.fault = fault
        self.is_stalled = False
        # The client's side is reset; the server believes in its own and gets nothing any more.
        self.is_half_open = False

    def reset(self) -> None:
        _reset(self.client[1])
        _reset(self.server[1])

    def reset_client(self) -> None:
        """The server is not told."""
        self.is_half_open = True
        _reset(self.client[1])

    def close(self) -> None:
        for _, writer in (self.client, self.server):
            writer.close()

    def half_close(self, direction: Direction) -> None:
        writer = self.server[1] if direction == "up" else self.client[1]
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


class FaultProxy:
    """Passes bytes on to *url*, unless it is told otherwise."""

    def __init__(self, url: str, schedule: Iterable[Fault | None] = ()) -> None:
        """Each connection suffers the next fault of *schedule*, and those after its end none."""
        target = urlsplit(url)
        self.target_url = url
        self._target = (target.hostname, target.port)
        self._schedule: Iterator[Fault | None] = iter(schedule)
        self._pairs: dict[_Pair, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        # Seconds that each piece waits before it is passed on.
        self.delay = 0.0
        # While true, connections end as soon as they are made.
        self.is_down = False
        self.keeps_server_side = False
        # How many there were.
        self.connections = 0
        self.faults = 0
        # Pieces of data that were passed on, either way.
        self.pieces = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def is_idle(self) -> bool:
        return not self._pairs

    # Commands.

    def cut(self, *, only_client: bool = False) -> None:
        """Reset every connection; with *only_client* the server is left to believe in them."""
        self.faults += 1
        for pair in tuple(self._pairs):
            if only_client:
                pair.reset_client()
            else:
                pair.reset()

    def cut_next(self, direction: Direction) -> None:
        """Reset as soon as the next bytes are to go in *direction*; they get lost."""
        for pair in self._pairs:
            pair.fault = Fault(0, direction)

    def half_close(self, direction: Direction = "down") -> None:
        """Tell one side that the other says no more."""
        self.faults += 1
        for pair in self._pairs:
            pair.half_close(direction)

    def stall(self) -> None:
        """Pass nothing on in the connections that are there, and tell neither side."""
        self.faults += 1
        for pair in self._pairs:
            pair.is_stalled = True

    # The rest.

    async def wait(self, is_so: Callable[[FaultProxy], bool]) -> None:
        """Until *is_so*; asked whenever connections come and go."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: is_so(self))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            return
        pair = _Pair(
            (reader, writer),
            await asyncio.open_connection(*self._target),
            next(self._schedule, None),
        )
        task = asyncio.current_task()
        assert task is not None
        self.connections += 1
        self._pairs[pair] = task
        await self._tell()
        pumps = [
            asyncio.create_task(self._pump(pair, "up", pair.client[0], pair.server[1])),
            asyncio.create_task(self._pump(pair, "down", pair.server[0], pair.client[1])),
        ]
        try:
            await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            del self._pairs[pair]
            pair.server[1].transport.abort()
            await self._tell()

    async def _pump(
        self,
        pair: _Pair,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        count = 0
        try:
            while data := await reader.read(1 << 16):
                if pair.is_stalled:
                    continue
                if self.delay:
                    await asyncio.sleep(self.delay)
                fault = pair.fault
                if fault and fault.direction == direction and count + len(data) >= fault.after:
                    writer.write(data[: max(0, fault.after - count)])
                    pair.fault = None
                    if not self._suffer(pair, fault):
                        continue
                    if pair.is_half_open:
                        break
                    return
                count += len(data)
                self.pieces += 1
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        if pair.is_half_open and self.keeps_server_side:
            await asyncio.Event().wait()
        # When one side has ended, the other one learns it.
        writer.close()

    def _suffer(self, pair: _Pair, fault: Fault) -> bool:
        """Whether nothing more is passed on."""
        self.faults += 1
        if fault.kind == "stall":
            pair.is_stalled = True
            return False
        if fault.kind == "half-close":
            pair.half_close(fault.direction)
        elif fault.kind == "half-open":
            self.keeps_server_side = True
            pair.reset_client()
        elif fault.kind == "close":
            pair.close()
        else:
            pair.reset()
        return True

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[FaultProxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()


def fault_proxy(
    url: str, schedule: Iterable[Fault | None] = ()
) -> contextlib.AbstractAsyncContextManager[FaultProxy]:
    return FaultProxy(url, schedule).run()


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        raw = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
