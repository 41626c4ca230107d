"""What a registry holds and what its relay costs.

    python bench/hub.py [--executors 5000] [--megabytes 512] [--rounds 5]

A registry in a process of its own on the loopback gets idle executors, which register and keep a
socket as real ones do, and its memory is compared before and after. Then, with all of them there,
one more executor and a harness send each other frames, through the registry and over a socket from
the one to the other. Both ends are in this process: neither encrypts, so this is the relay alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    # A script finds its own folder on the path; the package is found from the one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import aiohttp
from picows import ws_create_server

from bench import machine, proc
from exec_server.cli.connecting import in_loop
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.transport.frames import FrameSocket, Sizes, dial_frames
from tests.support.servers import OURS, start_server

_MIB = 1 << 20
_RECORD = 60 << 10
_ECHOES = 2000
_AT_ONCE = 64
_SECONDS = 300
# Beside the sockets of the executors.
_OTHER_FILES = 100
_SIZES = Sizes(
    frame_bytes=DEFAULT_LIMITS.relay_frame_bytes,
    message_bytes=DEFAULT_LIMITS.relay_frame_bytes,
    sent_frame_bytes=DEFAULT_LIMITS.relay_frame_bytes,
)
_PROFILE = "noise_hybrid_ik_v1"


class End:
    """One end of a way: counts what comes, and sends it back where that is wanted."""

    def __init__(self) -> None:
        self.echoes = False
        self._missing = 0
        self._arrived = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.is_lost = False

    def socket_opened(self, socket: FrameSocket) -> None:
        self._socket = socket

    def frame_received(self, data: bytes | memoryview) -> None:
        if self.echoes:
            self._socket.send(bytes(data))
        self._missing -= len(data)
        if self._missing <= 0:
            self._arrived.set()

    def text_received(self, data: bytes) -> None:
        raise AssertionError("nobody sends texts")

    def writing_paused(self) -> None:
        self._may_write.clear()

    def writing_resumed(self) -> None:
        self._may_write.set()

    def socket_lost(self, reason: str) -> None:
        self.is_lost = True
        self._may_write.set()

    def expect(self, size: int) -> None:
        self._missing = size
        self._arrived.clear()

    async def arrived(self) -> None:
        await self._arrived.wait()

    async def send(self, data: bytes) -> None:
        await self._may_write.wait()
        assert not self.is_lost, "the socket is lost"
        self._socket.send(data)

    def drop(self) -> None:
        self._socket.drop()


class Way(NamedTuple):
    harness: End
    executor: End


class Measured(NamedTuple):
    """MB/s each way, and the seconds of a small frame and its echo."""

    up: float
    down: float
    echo: float


async def measure(way: Way, megabytes: int) -> Measured:
    # A stream is the harness's that first speaks on it.
    echo = await _echo(way)
    up = await _throughput(way.harness, way.executor, megabytes)
    return Measured(up, await _throughput(way.executor, way.harness, megabytes), echo)


async def _throughput(sender: End, receiver: End, megabytes: int) -> float:
    frame = _frame(_RECORD)
    count = megabytes * _MIB // _RECORD
    receiver.expect(count * len(frame))
    began = time.perf_counter()
    for _ in range(count):
        await sender.send(frame)
    await receiver.arrived()
    return count * _RECORD / 1e6 / (time.perf_counter() - began)


async def _echo(way: Way) -> float:
    frame = _frame(64)
    times = []
    way.executor.echoes = True
    for _ in range(_ECHOES):
        way.harness.expect(len(frame))
        began = time.perf_counter()
        await way.harness.send(frame)
        await way.harness.arrived()
        times.append(time.perf_counter() - began)
    way.executor.echoes = False
    return statistics.median(times)


def _frame(size: int) -> bytes:
    return encode(RelayFrame(StreamId("bench"), Data(1, bytes(size))))


# The two ways.


@contextlib.asynccontextmanager
async def directly() -> AsyncIterator[Way]:
    executor, harness = End(), End()

    def listener(_: Any) -> FrameSocket:
        return FrameSocket(
            executor,
            sizes=_SIZES,
            limits=DEFAULT_LIMITS,
            answers_close=False,
            on_open=lambda _: None,
        )

    server = await ws_create_server(listener, "127.0.0.1", 0, enable_auto_ping=False)
    port = server.sockets[0].getsockname()[1]
    await dial_frames(f"ws://127.0.0.1:{port}", harness, sizes=_SIZES, limits=DEFAULT_LIMITS)
    try:
        yield Way(harness, executor)
    finally:
        harness.drop()
        executor.drop()
        server.close()


class Registry:
    """The process that is measured, and who may use it."""

    def __init__(self, url: str, pid: int, enrolment: str, token: str) -> None:
        self._url = url
        self._pid = pid
        self._enrolment, self._token = enrolment, token
        self._key = KeyPair(os.urandom(SEED_BYTES)).public.to_object()

    @property
    def memory(self) -> int:
        """Bytes that it has for itself."""
        return proc.memory([proc.Identity(self._pid, 0)]).private

    async def executor(self, web: aiohttp.ClientSession, name: str) -> End:
        body = {"security_profile": _PROFILE, "executor_public_key": self._key}
        answer = await self._post(web, f"{name}/register", self._enrolment, body)
        return await self._dial(answer["url"])

    async def harness(self, web: aiohttp.ClientSession, name: str) -> End:
        body = {"harness_public_key": self._key}
        answer = await self._post(web, f"{name}/connect", self._token, body)
        return await self._dial(answer["url"])

    @contextlib.asynccontextmanager
    async def way(self, web: aiohttp.ClientSession) -> AsyncIterator[Way]:
        executor = await self.executor(web, "busy")
        harness = await self.harness(web, "busy")
        try:
            yield Way(harness, executor)
        finally:
            harness.drop()
            executor.drop()

    async def _post(self, web: aiohttp.ClientSession, path: str, token: str, body: Any) -> Any:
        url = f"{self._url}/cloud/environment/{path}"
        headers = {"Authorization": f"Bearer {token}"}
        async with web.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def _dial(self, url: str) -> End:
        end = End()
        await dial_frames(url, end, sizes=_SIZES, limits=DEFAULT_LIMITS)
        return end


async def fill(registry: Registry, web: aiohttp.ClientSession, count: int) -> list[End]:
    """*count* executors that nobody uses."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> End:
        async with slots:
            return await registry.executor(web, f"idle-{number}")

    return await asyncio.gather(*(one(number) for number in range(count)))


@contextlib.contextmanager
def started() -> Iterator[Registry]:
    with tempfile.TemporaryDirectory() as folder:
        state = ("--state", f"{folder}/state")
        made = [_token(kind, *state) for kind in ("enrol", "harness")]
        command = [*OURS, "registry", *state, "--log-level", "error"]
        with start_server(command=command) as server:
            yield Registry(server.url, server.pid, *made)


def _token(kind: str, *state: str) -> str:
    words = [*OURS, "registry", "token", "create", kind, "bench", *state, "-o", "json"]
    made = subprocess.run(words, check=True, capture_output=True, timeout=60)
    return str(json.loads(made.stdout)["token"])


async def run(registry: Registry, executors: int, megabytes: int, rounds: int) -> dict[str, Any]:
    """The figures, by name."""
    async with asyncio.timeout(_SECONDS), aiohttp.ClientSession() as web:
        # What the first one brings into memory stays, whatever their number.
        async with registry.way(web) as way:
            await measure(way, 1)
        before = registry.memory
        began = time.perf_counter()
        ends = await fill(registry, web, executors)
        seconds = time.perf_counter() - began
        each = (registry.memory - before) / max(executors, 1)
        pairs = []
        for _ in range(rounds):
            async with directly() as way:
                straight = await measure(way, megabytes)
            async with registry.way(web) as way:
                pairs.append((straight, await measure(way, megabytes)))
        lost = sum(end.is_lost for end in ends)
        for end in ends:
            end.drop()
    names = Measured._fields
    return {
        "executors": executors,
        "lost": lost,
        "registrations per second": executors / seconds,
        "KiB per idle executor": each / 1024,
        **{f"direct {name}": _middle(one[i] for one, _ in pairs) for i, name in enumerate(names)},
        **{f"relayed {name}": _middle(two[i] for _, two in pairs) for i, name in enumerate(names)},
    }


def _middle(values: Iterator[float]) -> float:
    return statistics.median(values)


def report(found: dict[str, Any]) -> str:
    lines = [
        f"{found['executors']} idle executors, {found['lost']} lost, "
        f"{found['registrations per second']:.0f} registrations/s, "
        f"{found['KiB per idle executor']:.1f} KiB each"
    ]
    for name, what in (("up", "to the executor"), ("down", "from the executor")):
        straight, relayed = found[f"direct {name}"], found[f"relayed {name}"]
        lines.append(
            f"{what}: {relayed:.0f} MB/s, directly {straight:.0f}: ratio {relayed / straight:.2f}"
        )
    straight, relayed = found["direct echo"] * 1e6, found["relayed echo"] * 1e6
    lines.append(
        f"echo: {relayed:.0f} us, directly {straight:.0f} us: ratio {relayed / straight:.1f}, "
        f"{relayed - straight:.0f} us added"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--executors", type=int, default=5000)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    values = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    executors = min(values.executors, hard - _OTHER_FILES)

    async def work() -> int:
        with started() as registry:
            print(report(await run(registry, executors, values.megabytes, values.rounds)))
        return 0

    for name, text in machine.facts().items():
        print(f"{name}: {text}")
    print(f"Load before: {machine.load():.1f}", flush=True)
    in_loop(work())


if __name__ == "__main__":
    main()
