"""What the registry uses of aiohttp without a promise: the tests say what a release has changed."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from exec_server.hub.http.handover import HandedOver
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from exec_server.transport.frame_headers import WHOLE_BINARY, frame_header
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.moved import moved

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HERE = "src/exec_server/hub/http/handover.py"


def changed(what: str) -> str:
    return moved("aiohttp", aiohttp.__version__, what, HERE)


@requirement("house/libraries:undocumented")
async def test_the_protocol_of_a_request_has_what_we_use():
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    protocol = RequestHandler(web.Server(handler), loop=asyncio.get_running_loop())
    tail = getattr(protocol, "_message_tail", None)
    assert tail == b"", changed("RequestHandler._message_tail is gone, or another thing")
    found = list(inspect.signature(RequestHandler.connection_lost).parameters)
    assert found == ["self", "exc"], changed(f"connection_lost takes {found}")


@requirement("house/libraries:undocumented")
def test_an_answer_is_finished_by_the_methods_that_we_replace():
    source = inspect.getsource(RequestHandler.finish_response)
    for call in ("prepare_meth = resp.prepare", "await resp.write_eof()"):
        assert call in source, changed(f"finish_response has no `{call}`")
    for name in ("prepare", "write_eof"):
        theirs = list(inspect.signature(getattr(web.StreamResponse, name)).parameters)
        ours = list(inspect.signature(getattr(HandedOver, name)).parameters)
        assert ours == theirs, changed(f"StreamResponse.{name} takes {theirs}")
    assert HandedOver().keep_alive is False


def frame(number: int) -> bytes:
    return encode(RelayFrame(StreamId("s"), Data(number, b"payload")))


def masked(payload: bytes) -> bytes:
    header = frame_header(WHOLE_BINARY, len(payload))
    return header[:1] + bytes([header[1] | 0x80]) + header[2:] + bytes(4) + payload


async def upgrade(pair: Any, key: str = KEY) -> tuple[SplitResult, bytes]:
    """The address for a harness, and a request that asks for its socket."""
    answer = await pair.visitor.connect(pair.name, pair.harness)
    parts = urlsplit(answer.body["url"])
    head = (
        f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {key}\r\n\r\n"
    )
    return parts, head.encode()


@requirement("house/libraries:undocumented")
async def test_frames_that_come_with_the_request_are_delivered(pair):
    parts, head = await upgrade(pair)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    frames = [frame(number) for number in range(100)]
    writer.write(head + b"".join(masked(each) for each in frames))
    got = [await pair.executor.receive_bytes(timeout=60) for _ in frames]
    assert got == frames, changed("what came behind the request is lost")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.close()
    await writer.wait_closed()
    # aiohttp was told of the loss: the handler has ended, and its connection is not counted.
    reset = await pair.executor.receive_bytes(timeout=60)
    assert b"the harness is gone" in reset
    await eventually(lambda: pair.visitor.hub.rendezvous.sockets == 1)


@requirement("house/libraries:undocumented")
async def test_a_connection_whose_upgrade_was_refused_stays_with_aiohttp(visitor):
    parts = urlsplit(visitor.hub.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    for _ in range(2):
        writer.write(
            f"GET /rendezvous/none?role=harness HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert head.startswith(b"HTTP/1.1 4"), head
        size = re.search(rb"Content-Length: (\d+)", head)
        assert size is not None
        await reader.readexactly(int(size[1]))
    writer.close()
    await writer.wait_closed()


@requirement("security/registry:malformed")
@pytest.mark.parametrize("key", [KEY.replace("l", "l "), KEY + "!", "\xe9" + KEY, "!" * 7000 + KEY])
async def test_a_key_that_aiohttp_would_accept_and_picows_does_not_is_refused(pair, key, caplog):
    parts, head = await upgrade(pair, key)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(head)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 426 "), answer
    await eventually(lambda: pair.visitor.hub.rendezvous.sockets == 1)
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_private_names_of_aiohttp_are_used_in_one_module():
    source = Path(__file__).parents[3] / "src" / "exec_server" / "hub"
    private = re.compile(r"(request|protocol|response)\._[a-z]")
    found = {path.name for path in source.rglob("*.py") if private.search(path.read_text())}
    assert found == {"handover.py"}
