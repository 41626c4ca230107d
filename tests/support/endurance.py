"""Durable jobs under load while their server is killed again and again; every byte is compared."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import signal
from pathlib import Path
from typing import Any, ClassVar

import websockets

from tests.support.children import child
from tests.support.durable import StateServers, is_running, until
from tests.support.leaks import open_descriptors
from tests.support.wire import Wire

STATUS = 17
_LOST = (OSError, websockets.WebSocketException, TimeoutError)


class Follower:
    """One job in a session of its own, followed over all connections that it takes."""

    def __init__(self, name: str, folder: Path, servers: StateServers, up: asyncio.Event) -> None:
        self.name = name
        self.mark = folder / f"{name}.mark"
        self._servers = servers
        self._up = up
        self._session: str | None = None
        # Every event by its number; an event that comes twice has to be the same.
        self.events: dict[int, tuple[str, bytes]] = {}
        self.exit_code: int | None = None
        self.is_closed = False
        self._next = 1

    def argv(self, stop: Path) -> list[str]:
        return child("counts_until_told.py", self.mark, stop, STATUS)

    options: ClassVar[dict[str, Any]] = {}

    async def start(self, stop: Path) -> None:
        async with Wire(self._servers.url) as wire:
            self._session = (await wire.initialize())["sessionId"]
            await wire.start(self.name, self.argv(stop), durable=True, **self.options)
            wire.cut()

    async def follow(self) -> None:
        while not self.is_closed:
            await self._up.wait()
            try:
                async with Wire(self._servers.url) as wire:
                    await self._follow_over(wire)
            except _LOST:
                await asyncio.sleep(0.02)

    async def _follow_over(self, wire: Wire) -> None:
        answer = await wire.answer(
            await wire.request("initialize", {"clientName": "t", "resumeSessionId": self._session})
        )
        if "result" not in answer:
            # The server has not noticed yet that the connection before this one is gone.
            assert "already attached" in answer["error"]["message"], answer
            return
        await wire.send({"method": "initialized"})
        await self._catch_up(wire)
        await self.resumed(wire)
        while not self.is_closed:
            messages, wire.unread = wire.unread, []
            for message in messages or [await wire.receive()]:
                await self._take(wire, message)

    async def _catch_up(self, wire: Wire) -> None:
        while True:
            params = {"processId": self.name, "afterSeq": self._next - 1, "maxBytes": 1 << 20}
            answer = await wire.call("process/read", params)
            for chunk in answer["chunks"]:
                self._note(chunk["seq"], chunk["stream"], base64.b64decode(chunk["chunk"]))
            if not answer["chunks"]:
                break
        if answer["exited"]:
            assert answer["exitCode"] is not None, answer
            self.exit_code = answer["exitCode"]
        # Exit and close have numbers and no chunks.
        self._next = max(self._next, answer["nextSeq"])
        self.is_closed = answer["closed"]

    async def _take(self, wire: Wire, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "process/output":
            self._note(params["seq"], params["stream"], base64.b64decode(params["chunk"]))
            await self.spoke(wire)
        elif method == "process/exited":
            self.exit_code = params["exitCode"]
            self._next = max(self._next, params["seq"] + 1)
        elif method == "process/closed":
            self.is_closed = True
        else:
            await self.answered(wire, message)

    def _note(self, seq: int, stream: str, data: bytes) -> None:
        known = self.events.setdefault(seq, (stream, data))
        assert known == (stream, data), f"{self.name}: number {seq} was given out twice"
        self._next = max(self._next, seq + 1)

    async def resumed(self, wire: Wire) -> None:
        """The connection has caught up."""

    async def spoke(self, wire: Wire) -> None:
        """There is output."""

    async def answered(self, wire: Wire, message: dict[str, Any]) -> None:
        """A request of `resumed` is answered."""

    def output(self, stream: str) -> bytes:
        return b"".join(data for _, (name, data) in sorted(self.events.items()) if name == stream)

    def check(self) -> None:
        """Raise AssertionError unless everything came once and in order."""
        assert self.mark.read_bytes() == b"runs\n", f"{self.name} did not run once"
        assert self.exit_code == STATUS, f"{self.name} ended with {self.exit_code}"
        for fd, stream in ((1, "stdout"), (2, "stderr")):
            check_counted(self.name, fd, self.output(stream).splitlines())


def check_counted(name: str, fd: int, lines: list[bytes]) -> None:
    wanted = [b"%d:%08d" % (fd, number) for number in range(len(lines) - 1)]
    wanted.append(b"%d:total %d" % (fd, len(lines) - 1))
    if lines != wanted:
        pairs = zip(lines, wanted, strict=True)
        at = next(i for i, (found, hoped) in enumerate(pairs) if found != hoped)
        raise AssertionError(f"{name}: line {at} of {len(lines)} is {lines[at]!r}")


class TerminalFollower(Follower):
    options: ClassVar[dict[str, Any]] = {"tty": True, "exitSignals": True}

    def check(self) -> None:
        assert self.mark.read_bytes() == b"runs\n", f"{self.name} did not run once"
        assert self.exit_code == STATUS, f"{self.name} ended with {self.exit_code}"
        lines = self.output("pty").replace(b"\r\n", b"\n").splitlines()
        for fd in (1, 2):
            check_counted(self.name, fd, [line for line in lines if line[:1] == b"%d" % fd])


class EchoFollower(Follower):
    """Writes lines to a `cat`, each once, and compares what comes back."""

    options: ClassVar[dict[str, Any]] = {"pipeStdin": True}
    stream = "stdout"
    # What the program says before it reads.
    greeting = b""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stop: Path
        self._typed: list[bytes] = []
        self._accepted = 0
        self._requests: dict[int, int] = {}
        self._has_ended = False

    def argv(self, stop: Path) -> list[str]:
        self.stop = stop
        return ["sh", "-c", f'echo runs >> "$0"; cat; exit {STATUS}', str(self.mark)]

    async def spoke(self, wire: Wire) -> None:
        await self._type(wire)

    async def resumed(self, wire: Wire) -> None:
        # What was not answered is repeated, with the same ids.
        self._requests.clear()
        if self._has_ended and not self.greeting:
            await self.end(wire)
        for number in range(self._accepted, len(self._typed)):
            await self._write(wire, number)
        await self._type(wire)

    async def _type(self, wire: Wire) -> None:
        is_early = self.greeting and not self.events
        if self._accepted < len(self._typed) or self._has_ended or is_early:
            return
        if self.stop.exists():
            self._has_ended = True
            await self.end(wire)
            return
        for _ in range(3):
            number = len(self._typed)
            self._typed.append(b"%08d %s\n" % (number, b"x" * random.choice((1, 80, 900))))
            await self._write(wire, number)

    async def end(self, wire: Wire) -> None:
        await wire.request("process/closeStdin", {"processId": self.name})

    async def _write(self, wire: Wire, number: int) -> None:
        chunk = base64.b64encode(self._typed[number]).decode()
        params = {"processId": self.name, "chunk": chunk, "writeId": f"w{number}"}
        self._requests[await wire.request("process/write", params)] = number

    async def answered(self, wire: Wire, message: dict[str, Any]) -> None:
        number = self._requests.pop(message.get("id", 0), None)
        if number is not None:
            assert message["result"]["status"] == "accepted", message
            assert number == self._accepted
            self._accepted += 1
            await self._type(wire)

    def check(self) -> None:
        assert self.mark.read_bytes() == b"runs\n", f"{self.name} did not run once"
        assert self.exit_code == STATUS, f"{self.name} ended with {self.exit_code}"
        echoed, typed = self.output(self.stream), self.greeting + b"".join(self._typed)
        assert echoed == typed, f"{self.name}: {len(echoed)} of {len(typed)} bytes came back"


class TerminalEchoFollower(EchoFollower):
    """The same on a terminal in raw mode, which changes nothing; an escape ends it."""

    options: ClassVar[dict[str, Any]] = {"tty": True, "exitSignals": True}
    stream = "pty"
    greeting = b"ready"

    def argv(self, stop: Path) -> list[str]:
        self.stop = stop
        return child("echoes_a_terminal.py", self.mark, STATUS)

    async def end(self, wire: Wire) -> None:
        self._typed.append(b"\x1b")
        await self._write(wire, len(self._typed) - 1)


KINDS = (Follower, TerminalFollower, EchoFollower, TerminalEchoFollower)


class Endurance:
    """*jobs* jobs of all kinds on one server, which is killed *kills* times."""

    def __init__(self, folder: Path, *, jobs: int, kills: int, seed: int) -> None:
        self._folder = folder
        self._kills = kills
        self._chance = random.Random(seed)
        self._up = asyncio.Event()
        self.servers = StateServers(folder / "state")
        self._stop = folder / "stop"
        self.followers = [
            KINDS[number % len(KINDS)](f"job{number}", folder, self.servers, self._up)
            for number in range(jobs)
        ]
        self.facts: dict[str, Any] = {}

    async def run(self) -> None:
        """Raise AssertionError if anything was lost, came twice or was left behind."""
        try:
            for follower in self.followers:
                await follower.start(self._stop)
            self._up.set()
            async with asyncio.TaskGroup() as group:
                for follower in self.followers:
                    group.create_task(follower.follow(), name=follower.name)
                await self._kill_often()
            for follower in self.followers:
                follower.check()
            sizes = [len(data) for each in self.followers for _, data in each.events.values()]
            self.facts["compared"] = f"{len(sizes)} chunks of {sum(sizes)} bytes"
            await self._check_nothing_left()
        finally:
            self.servers.close()

    async def _kill_often(self) -> None:
        loop = asyncio.get_running_loop()
        keeper = self.servers.keeper_pid
        first: tuple[int, int] | None = None
        for number in range(self._kills):
            await asyncio.sleep(self._chance.uniform(0.02, 0.4))
            self._up.clear()
            signum = signal.SIGTERM if self._chance.random() < 0.2 else signal.SIGKILL
            await loop.run_in_executor(None, self.servers.kill, signum)
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.1, 0.5)))
            await loop.run_in_executor(None, self.servers.start)
            self._up.set()
            if number == min(2, self._kills - 1):
                first = _held_by(keeper)
        assert first is not None
        assert self.servers.keeper_pid == keeper, "the keeper was replaced"
        last = _held_by(keeper)
        self.facts = {
            "descriptors of the keeper": f"{first[0]}, then {last[0]}",
            "its memory": f"{first[1] >> 10} KiB, then {last[1] >> 10} KiB",
        }
        assert last[0] <= first[0] + 2, f"the keeper has {first[0]} descriptors, then {last[0]}"
        assert last[1] <= first[1] + (4 << 20), f"the keeper has grown: {first[1]}, then {last[1]}"
        self._stop.touch()

    async def _check_nothing_left(self) -> None:
        keeper = self.servers.keeper_pid
        async with Wire(self.servers.url) as wire:
            await wire.initialize()
            jobs = (await wire.call("job/list", {}))["jobs"]
            assert {job["state"] for job in jobs} == {"closed"}, jobs
            assert (await wire.call("job/prune", {}))["removed"] == len(self.followers)
        assert self.servers.kill(signal.SIGTERM) == 0
        await until(lambda: not is_running(keeper), "the keeper has not ended")
        assert self.servers.jobs == []


def _held_by(pid: int) -> tuple[int, int]:
    """The number of descriptors, and the resident bytes, of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return len(open_descriptors(pid)), pages * os.sysconf("SC_PAGE_SIZE")
