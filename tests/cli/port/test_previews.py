"""Previews: what a program sees of a request, events that stream, uploads, and another name."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from exec_server.client.streams.preview_front import renamed_head
from tests.cli.port.test_port_command import facts_of
from tests.requirements import requirement
from tests.support.cli import running
from tests.support.listening import listening
from tests.support.wire import PATIENCE

UPLOAD = 12_000_000
ORIGIN = "http://p3000.box.localhost:4000"


async def application(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A small web server: it answers one request after the other, as a real one does."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            break
        if head.startswith(b"GET /events"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
            # The second event follows when the first has arrived: its reader speaks first.
            await reader.readexactly(1)
            writer.write(b"data: 2\n\n")
            break
        if head.startswith(b"POST"):
            body = await reader.readexactly(UPLOAD)
            answer = hashlib.sha256(body).hexdigest().encode()
        else:
            answer = head
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        if b"Connection: close" in head:
            break
    writer.close()


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    return await reader.readexactly(length)


@requirement("port/preview:streams", "port/preview:localhost")
@pytest.mark.one_loop
@pytest.mark.parametrize("option", [(), ("--as-localhost",)])
async def test_events_uploads_and_names(server, tmp_path: Path, option: tuple[str, ...]):
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    async with asyncio.timeout(3 * PATIENCE), listening(application) as page:
        words = ("port", server.url, "-o", "json", *option, "--open", str(page))
        async with running(*words, env=env) as process:
            [facts] = await facts_of(process)
            origin = facts["url"].rstrip("/")
            host = origin.removeprefix("http://")
            port = int(host.rpartition(":")[2])
            sees = f"localhost:{page}" if option else host

            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode()
            writer.write(head)
            told = (await answer_of(reader)).decode()
            assert f"Host: {sees}\r\nOrigin: http://{sees}\r\n" in told
            if option:
                assert await reader.read() == b""
            else:
                writer.write(head)
                assert await answer_of(reader) == head
            writer.close()

            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await reader.readuntil(b"data: 1\n\n")
            writer.write(b"!")
            assert await reader.read() == b"data: 2\n\n"
            writer.close()

            body = os.urandom(UPLOAD)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + body)
            assert await answer_of(reader) == hashlib.sha256(body).hexdigest().encode()
            writer.close()


@requirement("port/preview:localhost")
def test_the_name_of_a_request_is_replaced_and_other_origins_stay():
    request = (
        "POST /x HTTP/1.1\r\nhost: p3000.box.localhost:4000\r\nOrigin: {}\r\n"
        "Connection: keep-alive\r\n\r\nHost: body"
    )
    assert renamed_head(request.format(ORIGIN).encode(), ORIGIN, 3000) == (
        b"POST /x HTTP/1.1\r\nHost: localhost:3000\r\nOrigin: http://localhost:3000\r\n"
        b"Connection: close\r\n\r\nHost: body"
    )
    # The program decides about a page of another origin, and has to see it.
    assert b"Origin: http://evil.test\r\n" in renamed_head(
        request.format("http://evil.test").encode(), ORIGIN, 3000
    )
    upgrade = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    assert b"Connection: Upgrade" in renamed_head(upgrade, ORIGIN, 3000)
