"""How much memory a large answer of http/request takes."""

from __future__ import annotations

import asyncio

import pytest

from tests.requirements import requirement
from tests.support.http_target import Line, Received, target
from tests.support.http_wire import request_params
from tests.support.servers import start_server
from tests.support.wire import Wire

MIB = 1 << 20
BODY_MIB = 96
PIECE = bytes(range(256)) * 4096


def peak_mib(pid: int) -> float:
    """The most memory that a process has ever had."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


@pytest.mark.one_loop
@pytest.mark.parametrize("is_chunked", [False, True])
@requirement("http/answer:memory")
async def test_a_large_answer_takes_little_more_than_its_base64(is_chunked):
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

    with start_server() as server:
        async with target(behave) as origin, Wire(server.url) as wire, asyncio.timeout(60):
            await wire.initialize()
            await wire.call("http/request", request_params(f"{origin.url}/small"))
            before = peak_mib(server.pid)
            await wire.send(
                {"id": 9, "method": "http/request", "params": request_params(origin.url)}
            )
            size = 0
            is_last = False
            async for frame in wire.socket.recv_streaming(decode=False):
                size += len(frame)
                is_last = bytes(frame).endswith(b'"}}')
            grown = peak_mib(server.pid) - before
    assert is_last
    assert size > BODY_MIB * MIB * 4 // 3
    # Twice the size of the body is what a client may count on; its base64 alone is 4/3 of it.
    assert grown < BODY_MIB * 2
