"""The work of the harnesses. Each raises AssertionError for the first wrong byte."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import exec_server
from exec_server.errors import ConnectError, ConnectionClosed
from tests.support.streaming import LINE_BYTES, Connections, Echo, Stream, spoken

_MIB = 1 << 20
_FLOOD_BYTES = 64 * _MIB
_FLOOD_LINE = 1024
_TICK_SECONDS = 0.05
_VISIT_SECONDS = 1.0
_MOST_LINES = 10_000_000


class Harness:
    """Works from `run` until `stop`."""

    # True if its commands outlive the executor.
    is_durable = False

    def __init__(self, name: str, url: str, token: str, folder: Path) -> None:
        self.name = name
        self.connections = Connections()
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()
        self.bytes = 0
        # The number of commands and files that were checked to the byte.
        self.checked = 0
        # The longest time without output.
        self.longest = 0.0
        self._url = url
        self._token = token
        self._folder = folder
        self._has_enough = False

    def stop(self) -> None:
        self._has_enough = True

    async def run(self) -> None:
        async with exec_server.connect(
            self._url, token=self._token, on_state=self.connections.heard
        ) as client:
            await self._work(client)
        self.is_over.set()

    async def _work(self, client: exec_server.ExecServerClient) -> None:
        raise NotImplementedError

    async def _follow(self, stream: Stream, client: exec_server.ExecServerClient) -> None:
        """Run one command to its end."""
        async with asyncio.TaskGroup() as tasks:
            begun = tasks.create_task(stream.until(lambda stream: stream.lines > 0))
            begun.add_done_callback(lambda _: self.has_begun.set())
            await stream.run(client, durable=self.is_durable)
            begun.cancel()
        self.bytes += stream.bytes
        self.longest = max(self.longest, stream.longest)
        self.checked += 1


class Flood(Harness):
    """Output at full speed, of one command after the other."""

    size = _FLOOD_BYTES
    between = 0.0

    def __init__(self, name: str, url: str, token: str, folder: Path, *, pause: float) -> None:
        super().__init__(name, url, token, folder)
        self._pause = pause

    async def _work(self, client: exec_server.ExecServerClient) -> None:
        stop = self._folder / f"{self.name}.stop"
        number = 0
        while not self._has_enough:
            mark = self._folder / f"{self.name}.{number}"
            lines = self.size // _FLOOD_LINE
            stream = spoken(mark, stop, length=_FLOOD_LINE, pause=self._pause, most=lines)
            await self._follow(stream, client)
            number += 1
            await asyncio.sleep(self.between)

    def stop(self) -> None:
        super().stop()
        (self._folder / f"{self.name}.stop").touch()


class Ticks(Harness):
    """One command that prints a line at intervals until the end."""

    async def _work(self, client: exec_server.ExecServerClient) -> None:
        mark, stop = self._folder / self.name, self._folder / f"{self.name}.stop"
        stream = spoken(mark, stop, length=LINE_BYTES, pause=_TICK_SECONDS, most=_MOST_LINES)
        await self._follow(stream, client)

    def stop(self) -> None:
        (self._folder / f"{self.name}.stop").touch()


class Echoes(Harness):
    """A command that echoes the lines that are written to it."""

    def __init__(self, name: str, url: str, token: str, folder: Path) -> None:
        super().__init__(name, url, token, folder)
        self._echo = Echo(folder / name, length=4 * _FLOOD_LINE, pause=0.01)

    async def _work(self, client: exec_server.ExecServerClient) -> None:
        await self._follow(self._echo, client)

    def stop(self) -> None:
        self._echo.stop()


class DurableFlood(Flood):
    """Shorter ones, because all of their output is kept on the disk, and durable."""

    is_durable = True
    size = 4 * _MIB
    between = 0.5


class DurableTicks(Ticks):
    is_durable = True


class DurableEchoes(Echoes):
    is_durable = True


class Files(Harness):
    """Writes and reads files of 1 MiB. A write whose result is unknown is repeated."""

    def __init__(self, name: str, url: str, token: str, folder: Path, draw: random.Random) -> None:
        super().__init__(name, url, token, folder)
        self._draw = draw

    async def _work(self, client: exec_server.ExecServerClient) -> None:
        path = str(self._folder / f"{self.name}.bin")
        while not self._has_enough:
            began_at = time.monotonic()
            data = self._draw.randbytes(_MIB)
            await self._until_done(client, path, data)
            self.longest = max(self.longest, time.monotonic() - began_at)
            self.has_begun.set()
            self.bytes += 2 * len(data)
            self.checked += 1

    async def _until_done(
        self, client: exec_server.ExecServerClient, path: str, data: bytes
    ) -> None:
        while True:
            try:
                await client.fs.write_bytes(path, data)
                found = await client.fs.read_bytes(path)
            except ConnectionClosed as exc:
                if not exc.may_have_run:
                    # The session is lost, not only this call.
                    raise
                continue
            assert found == data, f"{self.name}: {len(found)} other bytes"
            return


class Visits(Harness):
    """A new client every second, which runs one command."""

    async def run(self) -> None:
        number = 0
        while not self._has_enough:
            mark = self._folder / f"{self.name}.{number}"
            began_at = time.monotonic()
            if await self._visit(mark, number):
                self.longest = max(self.longest, time.monotonic() - began_at)
                self.has_begun.set()
                number += 1
                await asyncio.sleep(_VISIT_SECONDS)
        self.is_over.set()

    async def _visit(self, mark: Path, number: int) -> bool:
        """Run one command; False if no node accepted the client."""
        try:
            async with exec_server.connect(
                self._url, token=self._token, on_state=self.connections.heard
            ) as client:
                script = 'echo runs >> "$1"; echo "$2"'
                argv = ["sh", "-c", script, "sh", str(mark), str(number)]
                done = await client.run(argv, ensure=True)
        except ConnectError:
            assert not mark.exists(), f"{mark} was run without an answer"
            return False
        assert (done.returncode, done.stdout) == (0, f"{number}\n".encode()), mark
        assert mark.read_text() == "runs\n", mark
        self.bytes += len(done.stdout)
        self.checked += 1
        return True
