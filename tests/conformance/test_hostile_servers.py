"""Servers that hang, close or say nonsense: every check ends in time and says what was seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from exec_server.conformance import report
from exec_server.conformance.check import (
    CheckResult,
    ServerUnderTest,
    ServerUnreachable,
    run_checks,
    version_of,
)
from tests.conformance.test_kit import BY_ID
from tests.requirements import requirement

pytestmark = pytest.mark.one_loop
# Checks of each kind: envelopes, processes, files, sessions, HTTP, extensions.
IDS = ("handshake.result", "output.numbers", "fs.blocks", "session.resume", "http.status")
DEEP = "[" * 100_000 + "]" * 100_000

# What a server says to each message.
ANSWERS: dict[str, Callable[[Any], Any]] = {
    "no JSON": lambda message: "{not json",
    "no object": lambda message: "[1, 2]",
    "deep": lambda message: f'{{"id": {message.get("id", 0)}, "result": {DEEP}}}',
    "binary": lambda message: b"\xff\xfe",
    "null": lambda message: json.dumps({"id": message.get("id"), "result": None}),
    "a list": lambda message: json.dumps({"id": message.get("id"), "result": [1]}),
    "an error that is a text": lambda message: json.dumps({"id": message.get("id"), "error": "no"}),
    "an error that is empty": lambda message: json.dumps({"id": message.get("id"), "error": {}}),
    "a number": lambda message: json.dumps({"id": message.get("id"), "result": 1e400}),
    "events without parameters": lambda message: json.dumps({"method": "process/output"}),
    "events of another shape": lambda message: json.dumps(
        {"method": "process/closed", "params": {"processId": 1, "seq": []}}
    ),
    "nothing": lambda message: None,
}


@asynccontextmanager
async def hostile(answer: Callable[[Any], Any]) -> AsyncIterator[str]:
    async def handle(socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for text in socket:
                try:
                    said = answer(json.loads(text))
                except (ValueError, AttributeError):
                    said = "{}"
                if said is not None:
                    await socket.send(said)

    async with serve(handle, "127.0.0.1", 0, max_size=None) as listener:
        yield f"ws://127.0.0.1:{next(iter(listener.sockets)).getsockname()[1]}"


async def results(url: str, *ids: str, patience: float = 0.5) -> list[CheckResult]:
    found: list[CheckResult] = []
    chosen = [BY_ID[each] for each in ids or IDS]
    # The outer limit is for a check that does not end.
    async with asyncio.timeout(120):
        await run_checks(chosen, ServerUnderTest(url, {}, patience), on_result=found.append)
    return found


@requirement("kit:hostile")
@pytest.mark.parametrize("name", ANSWERS)
async def test_nonsense_fails_every_check_with_what_was_seen(name):
    async with hostile(ANSWERS[name]) as url:
        found = await results(url)
    assert {each.verdict for each in found} == {"failed"}
    assert all(each.seen for each in found)


@requirement("kit:hostile")
async def test_a_server_that_closes_or_is_no_server_is_told():
    async def close(socket: ServerConnection) -> None:
        await socket.close(1011, "no \x1b[31m more")

    async with serve(close, "127.0.0.1", 0) as listener:
        url = f"ws://127.0.0.1:{next(iter(listener.sockets)).getsockname()[1]}"
        (result,) = await results(url, "handshake.result", patience=60)
    assert "the connection ended" in result.seen
    assert "\x1b" not in report.line(result)

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x00\x01 garbage\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as no_server:
        url = f"ws://127.0.0.1:{no_server.sockets[0].getsockname()[1]}"
        (result,) = await results(url, "handshake.result", patience=60)
        assert result.verdict == "failed"
        assert "no connection" in result.seen
        with pytest.raises(ServerUnreachable):
            await version_of(ServerUnderTest(url, {}, 60.0))


@requirement("kit:hostile")
async def test_a_registry_that_says_nonsense_is_told():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        url = f"noise+http://127.0.0.1:{port}/env"
        for result in await results(url, "registry.connect", "noise.handshake", patience=60):
            assert result.verdict == "failed"
            assert "`connect` was answered with 200" in result.seen


@requirement("kit:hostile")
async def test_a_program_that_is_no_server_is_told():
    for command in ("true", "no-such-program", "yes"):
        (result,) = await results(f"stdio:{command}", "handshake.result", patience=2)
        assert result.verdict == "failed"
        assert result.seen
