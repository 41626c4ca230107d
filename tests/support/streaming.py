"""Work for harnesses that must come out to the byte, whatever happens to what is in between."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import exec_server
from tests.support.children import child

# A line of this many bytes has room for a number and a time.
LINE_BYTES = 64


class Connections:
    """What becomes of a client's connection: give `heard` to `connect(on_state=)`."""

    def __init__(self) -> None:
        self.state = "new"
        self.losses = 0
        # Seconds without one; from the loss to the connection that replaced it.
        self.longest = 0.0
        self._lost_at = 0.0

    def heard(self, state: exec_server.ConnectionState) -> None:
        before, self.state = self.state, state
        if state == "recovering":
            self.losses += 1
            self._lost_at = time.monotonic()
        elif before == "recovering":
            self.longest = max(self.longest, time.monotonic() - self._lost_at)


class Stream:
    """What one command says, compared in the end with what it says that it said.

    The command leaves a line in *mark* for each run.
    """

    def __init__(self, mark: Path, argv: list[str], *, takes_input: bool = False) -> None:
        self._mark = mark
        self._argv = argv
        self._takes_input = takes_input
        self._digest = hashlib.sha256()
        self._rest = b""
        self._changed: asyncio.Event = asyncio.Event()
        self._heard_at = time.monotonic()
        self.bytes = 0
        self.lines = 0
        self.last_line = b""
        # The longest time between two pieces of output.
        self.longest = 0.0

    async def run(self, client: exec_server.ExecServerClient, *, durable: bool = False) -> None:
        """Start it once, and follow it to its end. Raises AssertionError for any difference."""
        process = await client.start(
            self._argv, stdin=self._takes_input, durable=durable, ensure=True, on_gap="fail"
        )
        self._heard_at = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            if self._takes_input:
                tasks.create_task(self._feed(process))
            async for chunk in process:
                self._hear(chunk.data)
            self._changed.set()
        assert await process.wait() == 0, self._mark
        self._compare()

    async def until(self, is_so: Callable[[Stream], bool]) -> None:
        """Returns once that is so of what was heard."""
        while not is_so(self):
            self._changed.clear()
            await self._changed.wait()

    def said_after(self, moment: float) -> bool:
        """Whether something was heard that was said after *moment*, on this machine's clock."""
        return bool(self.last_line) and float(self.last_line.split()[1]) > moment

    async def _feed(self, process: exec_server.RemoteProcess) -> None:
        """Nothing, in general."""

    def _hear(self, data: bytes) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self._heard_at)
        self._heard_at = now
        self._digest.update(data)
        self.bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            number = int(line.split(maxsplit=1)[0])
            assert number == self.lines, f"{self._mark}: {number} instead of {self.lines}"
            self.lines += 1
        if lines:
            self.last_line = lines[-1]
        self._changed.set()

    def _compare(self) -> None:
        heard = f"said {self.bytes} {self._digest.hexdigest()}"
        assert self._mark.read_text().splitlines() == ["runs", heard], self._mark


def spoken(mark: Path, stop: Path, *, length: int, pause: float, most: int) -> Stream:
    """Numbered lines until *stop* is there, at most so many."""
    argv = child("says_numbered_lines.py", mark, stop, length, pause, most)
    return Stream(mark, argv)


class Echo(Stream):
    """Lines that are written one after the other, each when the one before has come back."""

    def __init__(self, mark: Path, *, length: int = LINE_BYTES, pause: float = 0.0) -> None:
        super().__init__(mark, child("echoes_and_notes.py", mark), takes_input=True)
        self._length = length
        self._pause = pause
        self._has_enough = False

    def stop(self) -> None:
        self._has_enough = True

    async def _feed(self, process: exec_server.RemoteProcess) -> None:
        number = 0
        while not self._has_enough:
            line = f"{number} {time.monotonic():.6f} ".encode()
            await process.write(line + b"." * (self._length - len(line) - 1) + b"\n")
            number += 1
            await self.until(partial(_has_lines, number))
            await asyncio.sleep(self._pause)
        await process.close_stdin()


def _has_lines(count: int, stream: Stream) -> bool:
    return stream.lines >= count


class Harness:
    """One client, and what it has several commands do at once."""

    def __init__(self, name: str, url: str, token: str, streams: Sequence[Stream]) -> None:
        self.name = name
        self.connections = Connections()
        self.streams = streams
        self._url = url
        self._token = token

    async def run(self) -> None:
        """Returns when all commands have ended. Raises what went wrong."""
        async with (
            exec_server.connect(
                self._url, token=self._token, on_state=self.connections.heard
            ) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for stream in self.streams:
                tasks.create_task(stream.run(client))
