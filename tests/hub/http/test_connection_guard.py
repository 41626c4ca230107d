"""Connections of strangers: how long they live, how many there are, and what they are told."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import ssl
import sys
from contextlib import AsyncExitStack, suppress

import msgspec
import pytest

from exec_server.hub.http.connection_guard import fit_descriptors
from exec_server.limits import DEFAULT_LIMITS
from tests.hub.conftest import bring_online
from tests.requirements import requirement
from tests.support.certificates import make_certificates

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: registry\r\n\r\n"


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


async def connect(url: str, **options):
    host, port = address_of(url)
    return await asyncio.open_connection(host, port, **options)


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return head + await reader.readexactly(length)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            return await reader.read() == b""
    return True


@requirement("security/registry:strangers")
@pytest.mark.parametrize("next_request", [b"", HEALTH[:-10], b"POST /api/pair HTTP/1.1\r\nHost: "])
async def test_a_connection_that_sends_no_other_request_is_closed(visit, next_request):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_idle_seconds=0.1)
    visitor = await visit(limits=limits)
    reader, writer = await connect(visitor.hub.url)
    writer.write(HEALTH)
    assert b"200 OK" in await answer(reader)
    writer.write(next_request)
    assert await is_closed(reader)
    writer.close()


@requirement("security/registry:strangers")
async def test_sockets_of_executors_and_harnesses_are_not_idle_connections(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_idle_seconds=0.05, hub_connections=2)
    visitor = await visit(limits=limits)
    pair = await bring_online(visitor)
    harnesses = [await pair.open_harness() for _ in range(4)]
    for socket in (pair.executor, *harnesses):
        await socket.ping()
        assert (await socket.receive(timeout=60)).data == b""


UNFINISHED = b"POST /api/pair HTTP/1.1\r\nHost: registry\r\nContent-Length: 9\r\n\r\n"


@requirement("security/registry:strangers")
@pytest.mark.parametrize("is_behind_proxy", [False, True])
async def test_a_connection_that_waits_for_its_body_gives_way(visit, is_behind_proxy):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_connections=8)
    visitor = await visit(limits=limits, is_behind_proxy=is_behind_proxy)
    async with AsyncExitStack() as stack:
        for number in range(30):
            stranger = ("127.0.0.2" if number % 2 else "127.0.0.3", 0)
            _, writer = await connect(visitor.hub.url, local_addr=stranger)
            stack.callback(writer.close)
            with suppress(ConnectionError):
                writer.write(UNFINISHED)
                await writer.drain()
        for _ in range(3):
            reader, writer = await connect(visitor.hub.url)
            stack.callback(writer.close)
            writer.write(HEALTH)
            assert b"200 OK" in await answer(reader)


@requirement("security/registry:strangers")
async def test_a_connection_whose_body_does_not_come_is_closed(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, http_head_timeout=0.2)
    visitor = await visit(limits=limits)
    reader, writer = await connect(visitor.hub.url)
    writer.write(UNFINISHED)
    assert await is_closed(reader)
    writer.close()


@requirement("security/registry:strangers")
@pytest.mark.parametrize(
    "sent",
    [
        b"POST /healthz HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n",
        b"POST /healthz HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n12345678",
        b"POST /nosuch HTTP/1.1\r\nHost: r\r\nContent-Length: 99999999\r\n\r\n",
    ],
)
async def test_a_body_that_no_handler_reads_has_a_deadline(visit, sent):
    """The time of aiohttp would be 10 seconds, as long as `is_closed` waits."""
    limits = msgspec.structs.replace(DEFAULT_LIMITS, http_head_timeout=0.2)
    visitor = await visit(limits=limits)
    reader, writer = await connect(visitor.hub.url)
    writer.write(sent)
    assert (await answer(reader)).startswith(b"HTTP/1.1 ")
    assert await is_closed(reader)
    writer.close()


@pytest.fixture
async def secure(visit, tmp_path):
    """A registry with TLS and room for eight connections of strangers, and a context for it."""
    authority = make_certificates(tmp_path).authority
    pem = str(tmp_path / "server.pem")
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_connections=8, http_head_timeout=30.0)
    visitor = await visit(tls_certificate=pem, tls_key=pem, limits=limits)
    return visitor, ssl.create_default_context(cafile=authority)


@requirement("security/registry:handshakes")
async def test_handshakes_that_do_not_go_on_give_way(secure):
    visitor, context = secure
    async with AsyncExitStack() as stack:
        readers = []
        for number in range(30):
            stranger = ("127.0.0.2" if number % 2 else "127.0.0.3", 0)
            reader, writer = await connect(visitor.hub.url, local_addr=stranger)
            stack.callback(writer.close)
            # The beginning of a handshake that never goes on.
            writer.write(b"\x16\x03\x01")
            readers.append(reader)
        for _ in range(3):
            options = {"ssl": context, "server_hostname": "localhost"}
            reader, writer = await connect(visitor.hub.url, **options)
            stack.callback(writer.close)
            writer.write(HEALTH)
            assert b"200 OK" in await answer(reader)
        # Those of the beginning are gone, long before their time.
        assert all([await is_closed(reader) for reader in readers[:20]])


@requirement("security/registry:handshakes")
async def test_handshakes_of_one_address_leave_those_of_another_alone(secure):
    visitor, context = secure
    async with AsyncExitStack() as stack:
        reader, writer = await connect(visitor.hub.url, local_addr=("127.0.0.4", 0))
        stack.callback(writer.close)
        for _ in range(30):
            _, stranger = await connect(visitor.hub.url, local_addr=("127.0.0.2", 0))
            stack.callback(stranger.close)
            stranger.write(b"\x16")
        # A connection that was accepted later is accepted after all of them.
        options = {"ssl": context, "server_hostname": "localhost"}
        _, later = await connect(visitor.hub.url, **options)
        stack.callback(later.close)
        # The slow but honest client does its handshake at last.
        await writer.start_tls(context, server_hostname="localhost")
        writer.write(HEALTH)
        assert b"200 OK" in await answer(reader)


@requirement("security/registry:handshakes")
async def test_a_handshake_that_fails_leaves_no_connection(secure):
    visitor, context = secure
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""):
        reader, writer = await connect(visitor.hub.url)
        writer.write(sent)
        if sent[:1] == b"\x16" or not sent:
            writer.write_eof()
        assert await is_closed(reader) or sent[:1] == b"G"
        writer.close()
    options = {"ssl": context, "server_hostname": "localhost"}
    reader, writer = await connect(visitor.hub.url, **options)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n")
    await answer(reader)
    writer.close()


@requirement("security/registry:strangers")
@pytest.mark.parametrize("is_behind_proxy", [False, True])
async def test_too_many_connections_drop_the_one_that_was_idle_for_longest(visit, is_behind_proxy):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_connections=8)
    visitor = await visit(limits=limits, is_behind_proxy=is_behind_proxy)
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(30):
            reader, writer = await connect(visitor.hub.url)
            stack.callback(writer.close)
            writer.write(HEALTH)
            assert b"200 OK" in await answer(reader)
            opened.append((reader, writer))
        assert await is_closed(opened[0][0])
        reader, writer = opened[-1]
        writer.write(HEALTH)
        assert b"200 OK" in await answer(reader)


@requirement("security/registry:strangers")
async def test_one_address_leaves_connections_for_others(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_connections=8)
    visitor = await visit(limits=limits)
    async with AsyncExitStack() as stack:

        async def healthy(source: str):
            reader, writer = await connect(visitor.hub.url, local_addr=(source, 0))
            stack.callback(writer.close)
            writer.write(HEALTH)
            assert b"200 OK" in await answer(reader)
            return reader, writer

        reader, writer = await healthy("127.0.0.2")
        for _ in range(40):
            await healthy("127.0.0.3")
        # The first one was idle for longest, but its address has only this one.
        writer.write(HEALTH)
        assert b"200 OK" in await answer(reader)


def test_the_limits_follow_the_open_files_of_the_process():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        fitted = fit_descriptors(DEFAULT_LIMITS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (fitted.hub_connections, fitted.hub_sockets) == (96, 96)


@requirement("security/registry:descriptors")
async def test_strangers_cannot_use_up_the_descriptors_of_a_registry(tmp_path):
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "from exec_server.cli.registry.registry_command import registry_command;"
        f"registry_command(['--state', {str(tmp_path / 'state')!r}, '--open-pairing'])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(30):
            url = (await process.stdout.readline()).decode().strip()
        async with AsyncExitStack() as stack:
            for number in range(400):
                reader, writer = await connect(url)
                stack.callback(writer.close)
                if number % 2:
                    writer.write(HEALTH)
                if number % 50 == 0:
                    writer.write(HEALTH)
                    assert b"200 OK" in await answer(reader)
            reader, writer = await connect(url)
            stack.callback(writer.close)
            writer.write(HEALTH)
            assert b"200 OK" in await answer(reader)
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 256
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            errors = await process.stderr.read()
            await process.wait()
    assert b"Traceback" not in errors and b"Too many open files" not in errors


PAIR = b"POST /api/pair HTTP/1.1\r\nHost: x\r\n"
MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    b"GARBAGE\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /\x00\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
    b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    PAIR + b"Content-Length: -1\r\n\r\n",
    PAIR + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    PAIR + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    PAIR + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloworld\r\n",
    PAIR + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    PAIR + b"Content-Encoding: deflate\r\nContent-Length: 1\r\n\r\n\xff",
    PAIR + b"Expect: magic\r\nContent-Length: 1\r\n\r\n1",
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET /rendezvous/a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /rendezvous/a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: !!\r\n\r\n",
    b"GET /api/environments?limit=x&limit=%zz HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /api/environments HTTP/1.1\r\nHost: x\r\nAuthorization: Basic \xff\xfe\r\n\r\n",
    b"CONNECT example.net:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
]


@requirement("security/registry:malformed")
@pytest.mark.parametrize("sent", MALFORMED, ids=range(len(MALFORMED)))
async def test_malformed_http_leaves_one_line_and_learns_nothing(visitor, sent, caplog):
    caplog.set_level(logging.INFO)
    caplog.clear()
    reader, writer = await connect(visitor.hub.url)
    writer.write(sent)
    async with asyncio.timeout(60):
        told = await reader.read(65536)
    writer.close()
    assert told.split()[1].startswith(b"4"), told
    assert b"python" not in told.lower() and b"aiohttp" not in told.lower()
    assert len(caplog.records) <= 1
    assert not any(record.exc_info for record in caplog.records)
