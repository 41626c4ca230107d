"""How much memory a large answer of http/request takes."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from tests.requirements import requirement
from tests.support.http_target import Behave, Line, Received, target
from tests.support.http_wire import request_params
from tests.support.servers import OURS, start_server
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

MIB = 1 << 20
BODY_MIB = 96
PIECE = bytes(range(256)) * 4096


def peak_mib(pid: int) -> float:
    """The most memory that a process has ever had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def serving(*, is_chunked: bool) -> Behave:
    """A target with a large body at `/` and a small one at `/small`."""

    async def behave(request: Received, line: Line) -> None:
        if request.path == "/small":
            await line.answer(200, b"x")
            return
        length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {BODY_MIB * MIB}"
        await line.say(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n")
        for _ in range(BODY_MIB):
            await line.say(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if is_chunked else PIECE)
        if is_chunked:
            await line.say("0\r\n\r\n")

    return behave


@pytest.mark.parametrize("is_chunked", [False, True])
@requirement("http/answer:memory")
async def test_a_large_answer_takes_little_more_than_its_base64(is_chunked):
    with start_server() as server:
        async with (
            target(serving(is_chunked=is_chunked)) as origin,
            Wire(server.url) as wire,
            asyncio.timeout(60),
        ):
            await wire.initialize()
            await wire.call("http/request", request_params(f"{origin.url}/small"))
            before = peak_mib(server.pid)
            await wire.request("http/request", request_params(origin.url))
            size = 0
            async for frame in wire.socket.recv_streaming(decode=False):
                size += len(frame)
                last = bytes(frame)
            grown = peak_mib(server.pid) - before
    assert last.endswith(b'"}}')
    assert size > BODY_MIB * MIB * 4 // 3
    # Twice the size of the body is what is promised; its base64 alone is 4/3 of it.
    assert grown < BODY_MIB * 2


@requirement("http/answer:memory")
async def test_so_it_is_on_stdio():
    async with target(serving(is_chunked=False)) as origin, asyncio.timeout(60):
        server = await asyncio.create_subprocess_exec(
            *OURS, "--listen", "stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert server.stdin is not None and server.stdout is not None
        for message in (
            {"id": 1, "method": "initialize", "params": {"clientName": "x"}},
            {"method": "initialized"},
            {"id": 2, "method": "http/request", "params": request_params(f"{origin.url}/small")},
        ):
            server.stdin.write(json.dumps(message).encode() + b"\n")
        for _ in range(2):
            assert b"result" in await server.stdout.readline()
        before = peak_mib(server.pid)
        asked = {"id": 3, "method": "http/request", "params": request_params(origin.url)}
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        size, last = 0, b""
        while not last.endswith(b"\n"):
            last = await server.stdout.read(MIB)
            size += len(last)
        grown = peak_mib(server.pid) - before
        server.stdin.close()
        await server.wait()
    assert size > BODY_MIB * MIB * 4 // 3
    assert grown < BODY_MIB * 2
