"""Hand a terminal over, kill its server, join late: ``python soak/sharing.py --help``.

Three participants type tagged lines, and the input is handed over at random; every line that was
accepted has to reach the program, whole and once, and no other one. The server is killed with
SIGKILL meanwhile, and the epoch has to survive. Watchers join at random moments, and have to see
what one sees who was there from the start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

if __name__ == "__main__":
    # A script finds its own folder on the path; the packages are found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import exec_server
from exec_server.client.process.output_buffer import OutputChunk
from exec_server.client.process.watched_process import Seen
from exec_server.protocol.sharing import ControlChangedEvent, ScreenPicture
from exec_server.terminal import TerminalEngine, open_engine
from soak.recorded_programs import programs, record
from tests.support.durable import StateServers, state_servers
from tests.support.terminal_output import session
from tests.terminal.test_dump import state_of

_COLUMNS, _ROWS = 70, 24
# Prints what is typed, and nothing else.
_CAT = ["sh", "-c", "stty raw -echo; echo ready; exec cat"]
# Prints what it reads from a FIFO; answers to the queries in there are not read.
_PLAY = ["sh", "-c", 'stty raw -echo; echo ready; exec cat "$0"']
# Programs that draw, whose recorded output late joiners see, too.
_DRAWING = {"vim", "nvim", "htop", "mc", "tig", "nano", "emacs", "unshare"}


class HandOvers:
    """One durable process, its owner (an agent) and two persons, on one server after another."""

    def __init__(self, servers: StateServers, choose: random.Random) -> None:
        self._servers = servers
        self._choose = choose
        self._token: str | None = None
        self._lines = 0
        self.accepted: list[bytes] = []
        self.refused = 0
        self.epoch = 0
        self.heard: list[float] = []

    async def start(self) -> None:
        async with exec_server.connect(self._servers.url) as client:
            process = await client.start(
                _CAT, tty=True, durable=True, process_id="shared", screen=True
            )
            await process.wait_for("ready")
            self._token = client.session_token()

    async def run(self, count: int) -> None:
        """Hand over *count* times, then kill the server."""
        url = self._servers.url
        async with (
            exec_server.connect(url, session_token=self._token) as owner,
            exec_server.connect(url) as ann,
            exec_server.connect(url) as bob,
        ):
            process = await owner.attach("shared")
            reading = asyncio.create_task(_drain(process))
            persons = [await each.watch("shared", kind="person") for each in (ann, bob)]
            changes = process.control_changes()
            for _ in range(count):
                await self._hand_over(process, persons, changes)
            self._token = owner.session_token()
            self._servers.kill()
            reading.cancel()
        self._servers.start()

    async def _hand_over(
        self,
        process: exec_server.RemoteProcess,
        persons: list[exec_server.WatchedProcess],
        changes: AsyncIterator[ControlChangedEvent],
    ) -> None:
        taker = self._choose.choice(persons)
        before, began = taker.epoch, time.perf_counter()
        if taker.drives:
            await taker.give_back()
        else:
            await taker.take()
        if taker.epoch == before:
            return
        change = await asyncio.wait_for(anext(changes), 60)
        self.heard.append((time.perf_counter() - began) * 1e3)
        assert change.control.epoch > self.epoch, (change, self.epoch)
        assert change.control.version is not None
        self.epoch = change.control.epoch
        for name, writer in (("o", process), ("a", persons[0]), ("b", persons[1])):
            self._lines += 1
            line = f"<{name}{self._lines}:{name * self._choose.randrange(1, 200)}>\n".encode()
            try:
                await writer.write(line)
            except exec_server.ControlLost as lost:
                assert lost.epoch == self.epoch, (lost, self.epoch)
                self.refused += 1
            else:
                self.accepted.append(line)

    async def check(self) -> None:
        """Everything that was accepted is in the output, in this order, and nothing else."""
        expected = b"ready\n" + b"".join(self.accepted)
        async with exec_server.connect(self._servers.url, session_token=self._token) as owner:
            process = await owner.attach("shared", 0)
            data = b""
            async with asyncio.timeout(60):
                async for chunk in process:
                    data += chunk.data
                    if len(data) >= len(expected):
                        break
            assert data == expected, "the output is not what was accepted"
            await process.kill()


async def _drain(process: exec_server.RemoteProcess) -> None:
    async for _ in process:
        pass


async def hand_overs(folder: Path, count: int, kills: int, choose: random.Random) -> None:
    with state_servers(folder / "state") as servers:
        shared = HandOvers(servers, choose)
        await shared.start()
        for _ in range(kills):
            await shared.run(count // kills)
        await shared.check()
    heard = sorted(shared.heard)
    print(
        f"{count} hand-overs and {kills} kills: {len(shared.accepted)} lines arrived, "
        f"{shared.refused} were refused, epoch {shared.epoch}; the owner heard it after "
        f"{statistics.median(heard):.1f} ms (p99 {heard[int(len(heard) * 0.99)]:.1f} ms, "
        f"load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


async def _streams(client: exec_server.ExecServerClient) -> list[bytes]:
    """What those programs have drawn that this machine has."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = [each for each in programs(Path(folder)) if _DRAWING & set(each.name.split())]
        made = [await record(client, each) for each in chosen]
    names = ", ".join(f"{each.program.name} ({len(each.data)} bytes)" for each in made)
    print(f"late joins see streams of {names or 'no program that is here'}", flush=True)
    return [each.data for each in made]


async def late_joins(folder: Path, count: int, choose: random.Random) -> None:
    """Join *count* times while a program draws, and compare with one who was there."""
    fifo = str(folder / "stream")
    os.mkfifo(fifo)
    source = os.open(fifo, os.O_RDWR)
    async with exec_server.local() as client:
        streams = await _streams(client)
        size = {"rows": _ROWS, "cols": _COLUMNS}
        process = await client.start([*_PLAY, fifo], tty=True, screen=True, **size)  # type: ignore[arg-type]
        whole = open_engine(_COLUMNS, _ROWS)
        seen, data, at = 0, b"", 0
        sizes: list[int] = []
        for number in range(count):
            if at >= len(data):
                drawn = session(choose.randrange(1000), _ROWS, _COLUMNS)
                data, at = choose.choice([drawn, *streams]), 0
            for is_late in (False, True):
                piece = data[at : at + choose.randrange(1, 300)]
                at += len(piece)
                if is_late:
                    watched = await client.watch(process.process_id)
                os.write(source, piece)
                seen = await _show(process, whole, seen, seen + len(piece))
            late = open_engine(_COLUMNS, _ROWS)
            await _see_the_same(watched, late, whole, sizes, number)
            late.close()
        await process.kill()
    os.close(source)
    middle = statistics.median(sizes)
    print(f"{count} late joins, all exact; a picture had {middle:.0f} bytes", flush=True)


async def _see_the_same(
    watched: exec_server.WatchedProcess,
    late: TerminalEngine,
    whole: TerminalEngine,
    sizes: list[int],
    number: int,
) -> None:
    """Feed *late* with what *watched* shows until it is like *whole*."""
    try:
        async with watched, asyncio.timeout(60):
            async for each in watched:
                shown = _bytes(each)
                if isinstance(each, ScreenPicture):
                    sizes.append(len(shown))
                late.feed(shown)
                if state_of(late) == state_of(whole):
                    return
    except TimeoutError:
        pass
    raise AssertionError(f"join {number} never showed the same")


async def _show(
    process: exec_server.RemoteProcess, engine: TerminalEngine, seen: int, wanted: int
) -> int:
    """Feed *engine* with the output up to the byte *wanted*; returns how much there was."""
    while seen < wanted:
        chunk = await anext(process)
        seen += len(chunk.data) - len(b"ready\n") * chunk.data.startswith(b"ready\n")
        engine.feed(chunk.data)
    return seen


def _bytes(seen: Seen) -> bytes:
    if isinstance(seen, ScreenPicture):
        return seen.data.data
    return seen.data if isinstance(seen, OutputChunk) else b""


async def slow_watcher(megabytes: int) -> None:
    """A watcher that does not read during a flood is current after little more."""
    async with exec_server.local() as client:
        script = f"stty raw -echo; read x; yes 'some words of output' | head -c {megabytes}M; cat"
        process = await client.start(["sh", "-c", script], tty=True, screen=True)
        watched = await client.watch(process.process_id, window=64 * 1024)
        await process.write(b"\n")
        size = 0
        while size < megabytes << 20:
            size += len((await anext(process)).data)
        await process.write(b"the end")
        got, text = 0, b""
        async with watched, asyncio.timeout(60):
            async for each in watched:
                shown = _bytes(each)
                got += len(shown)
                text = (text + shown)[-100_000:]
                if b"the end" in text:
                    break
        await process.kill()
        assert got <= 200_000, f"{got} bytes were sent to a slow watcher"
        print(f"a watcher that slept during {megabytes} MB was current after {got} bytes")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hand-overs", type=int, default=1000, help="[default: %(default)s]")
    parser.add_argument("--kills", type=int, default=10, help="[default: %(default)s]")
    parser.add_argument("--joins", type=int, default=1000, help="[default: %(default)s]")
    parser.add_argument("--flood", type=int, default=50, help="in MB [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="[default: the time]")
    options = parser.parse_args(words)
    print(f"seed {options.seed}", flush=True)
    choose = random.Random(options.seed)

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            await hand_overs(Path(folder), options.hand_overs, options.kills, choose)
            await late_joins(Path(folder), options.joins, choose)
        await slow_watcher(options.flood)

    asyncio.run(run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
