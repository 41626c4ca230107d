"""Byte streams of a client: to ports and Unix sockets of the server's machine, and back."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import socket

import pytest

from exec_server.client_urls import connect
from exec_server.errors import FloorRefused, InvalidParams
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.ports import free_port
from tests.support.wire import PATIENCE


@pytest.fixture
async def client(no_leaks):
    async with serve(stream_allow=["unix:/*"]) as running, connect(running.url) as connected:
        yield connected


@pytest.fixture
async def echo_port():
    async with listening(echo) as port:
        yield port


@requirement("streams/client:open-connection")
async def test_a_stream_behaves_as_a_connection_of_asyncio(client, echo_port):
    async with asyncio.timeout(PATIENCE):
        reader, writer = await client.open_connection("127.0.0.1", echo_port)
        assert writer.get_extra_info("peername") == ("127.0.0.1", echo_port)
        writer.write(b"one\ntwo\n")
        await writer.drain()
        assert await reader.readline() == b"one\n"
        assert await reader.readexactly(4) == b"two\n"
        writer.write(b"end")
        writer.write_eof()
        assert await reader.read() == b"end"
        writer.close()
        await writer.wait_closed()
    assert await client.list_streams() == []


@requirement("streams/client:bytes")
async def test_megabytes_come_back_as_they_were(client, echo_port):
    data = bytes(range(256)) * 40_000
    async with asyncio.timeout(PATIENCE):
        reader, writer = await client.open_connection("localhost", echo_port)

        async def send():
            for start in range(0, len(data), 300_000):
                writer.write(data[start : start + 300_000])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        back = await reader.read()
        await sending
        writer.close()
        await writer.wait_closed()
    assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


@requirement("streams/client:unix")
async def test_unix_sockets_both_ways(client, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    async with (
        asyncio.timeout(PATIENCE),
        contextlib.AsyncExitStack() as stack,
        await client.start_unix_server(echo, there) as remote,
    ):
        stack.callback((await asyncio.start_unix_server(echo, here)).close)
        assert remote.address == str(there)
        assert there.stat().st_mode & 0o777 == 0o600
        pairs = [
            await client.open_unix_connection(here),
            await asyncio.open_unix_connection(there),
        ]
        for reader, writer in pairs:
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"hello"
            writer.close()
            await writer.wait_closed()
    # The answer to this comes after the listener was closed.
    assert await client.list_streams() == []
    assert not there.exists()


@requirement("streams/client:start-server")
async def test_a_server_on_the_other_machine_calls_back(client):
    async with (
        asyncio.timeout(PATIENCE),
        await client.start_server(echo, "localhost", 0) as remote,
    ):
        assert remote.is_serving()
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*remote.address)
            writer.write(b"x" * 100_000)
            writer.write_eof()
            assert await reader.read() == b"x" * 100_000
            writer.close()
            await writer.wait_closed()
        kinds = [each.kind for each in await client.list_streams()]
        assert kinds[:1] == ["listener"]
    assert not remote.is_serving()


@requirement("streams/client:errors")
async def test_an_error_there_is_an_os_error_here(client, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError) as caught:
            await client.start_server(echo, "127.0.0.1", port)
        assert caught.value.errno == errno.EADDRINUSE
        assert str(port) in str(caught.value)
    with pytest.raises(ConnectionRefusedError) as caught:
        await client.open_connection("localhost", free_port())
    assert caught.value.errno == errno.ECONNREFUSED
    with pytest.raises(FileNotFoundError):
        await client.open_unix_connection(tmp_path / "missing")
    with pytest.raises(InvalidParams):
        await client.open_connection("not a host", 80)
    with pytest.raises(OSError):
        await client.open_connection("does-not-exist.invalid", 80)


@requirement("streams/client:reset")
async def test_a_reset_is_passed_on_in_both_directions(client):
    accepted = asyncio.get_running_loop().create_future()

    def accept(reader, writer):
        accepted.set_result((reader, writer))

    async with asyncio.timeout(PATIENCE), listening(accept) as port:
        reader, writer = await client.open_connection("127.0.0.1", port)
        writer.write(b"x")
        far_reader, far_writer = await accepted
        assert await far_reader.read(1) == b"x"
        writer.transport.abort()
        with pytest.raises(ConnectionResetError):
            await far_reader.read()
        far_writer.close()

        accepted = asyncio.get_running_loop().create_future()
        reader, writer = await client.open_connection("127.0.0.1", port)
        writer.write(b"x")
        far_reader, far_writer = await accepted
        assert await far_reader.read(1) == b"x"
        linger = (1).to_bytes(4, "little") + bytes(4)
        sock = far_writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        far_writer.transport.abort()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


@requirement("streams/wire:window")
async def test_a_stream_that_is_not_read_delays_no_other(client, echo_port):
    async def flood(reader, writer):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
        writer.close()

    async with asyncio.timeout(PATIENCE), listening(flood) as port:
        # It is never read.
        _, unread = await client.open_connection("127.0.0.1", port)
        reader, writer = await client.open_connection("127.0.0.1", echo_port)
        for _ in range(200):
            writer.write(b"key")
            assert await reader.readexactly(3) == b"key"
        held = next(each for each in await client.list_streams() if str(port) in each.address)
        assert held.bytes_out <= 5 << 20
        unread.transport.abort()
        writer.close()
        await writer.wait_closed()


@requirement("streams/client:forward")
async def test_forwards_connect_ports_of_both_machines(client, echo_port, tmp_path):
    async def ask(reader, writer):
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"hello"
        writer.close()
        await writer.wait_closed()

    async with (
        asyncio.timeout(PATIENCE),
        await client.forward(0, echo_port) as there,
        await client.forward(str(tmp_path / "sock"), ("127.0.0.1", echo_port)),
        await client.forward_back(0, echo_port) as back,
        await client.forward_socks(0) as socks,
    ):
        await ask(*await asyncio.open_connection(*there.address))
        await ask(*await asyncio.open_unix_connection(tmp_path / "sock"))
        await ask(*await asyncio.open_connection(*back.address))
        reader, writer = await asyncio.open_connection(*socks.address)
        writer.write(b"\x05\x01\x00\x05\x01\x00\x03\x09localhost" + echo_port.to_bytes(2, "big"))
        assert await reader.readexactly(12) == b"\x05\x00\x05\x00\x00\x01" + bytes(6)
        await ask(reader, writer)


@requirement("streams/client:reset")
async def test_a_program_that_ends_its_input_and_leaves_ends_an_endless_source(client):
    saw_end = asyncio.Event()
    broken = asyncio.Event()

    async def flood(reader, writer):
        assert await reader.read() == b"go"
        saw_end.set()
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
        broken.set()
        writer.close()

    async with (
        asyncio.timeout(PATIENCE),
        listening(flood) as port,
        await client.forward(0, port) as there,
    ):
        _, writer = await asyncio.open_connection(*there.address)
        writer.write(b"go")
        writer.write_eof()
        await saw_end.wait()
        # The end of its output has passed already, so only a write to it tells that it is gone.
        writer.transport.abort()
        await broken.wait()


@requirement("streams/client:forward")
async def test_a_forward_says_why_a_connection_fails(client):
    said: asyncio.Queue[str] = asyncio.Queue()
    port = free_port()
    async with (
        asyncio.timeout(PATIENCE),
        await client.forward(0, port, on_error=said.put_nowait) as there,
        await client.forward_socks(0, on_error=said.put_nowait) as socks,
    ):
        reader, writer = await asyncio.open_connection(*there.address)
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b"none"
        writer.close()
        why = await said.get()
        assert "refused" in why and "Errno" not in why
        reader, writer = await asyncio.open_connection(*socks.address)
        writer.write(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2, "big"))
        assert (await reader.readexactly(12))[2:4] == b"\x05\x05"
        assert "refused" in await said.get()
        writer.close()
        reader, writer = await asyncio.open_connection(*socks.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert "SOCKS5" in await said.get()
        writer.close()


@requirement("streams/client:forward")
async def test_a_program_that_leaves_before_the_answer_of_the_proxy_leaves_no_stream(client):
    ended: asyncio.Queue[None] = asyncio.Queue()

    async def far(reader, writer):
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        ended.put_nowait(None)

    async with (
        asyncio.timeout(PATIENCE),
        listening(far) as port,
        await client.forward_socks(0) as socks,
    ):
        request = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + port.to_bytes(2, "big")
        for _ in range(20):
            reader, writer = await asyncio.open_connection(*socks.address)
            writer.write(request)
            await reader.readexactly(2)
            writer.transport.abort()
        for _ in range(20):
            await ended.get()


@requirement("streams/client:forward")
async def test_what_the_proxy_does_not_do_is_said(client):
    said: asyncio.Queue[str] = asyncio.Queue()
    async with (
        asyncio.timeout(PATIENCE),
        await client.forward_socks(0, on_error=said.put_nowait) as socks,
    ):
        greeting, to = b"\x05\x01\x00", b"\x00\x01\x7f\x00\x00\x01\x00\x50"
        for words, answer, text in (
            (greeting + b"\x05\x03" + to, b"\x05\x00\x05\x07", "UDP"),
            (greeting + b"\x05\x02" + to, b"\x05\x00\x05\x07", "CONNECT"),
            (greeting + b"\x05\x01\x00\x09", b"\x05\x00\x05\x08", "address"),
            (b"\x05\x01\x02", b"\x05\xff", "password"),
        ):
            reader, writer = await asyncio.open_connection(*socks.address)
            writer.write(words)
            assert (await reader.read()).startswith(answer)
            assert text in await said.get()
            writer.close()


@requirement("streams/client:open-connection")
async def test_a_protocol_that_cannot_be_made_leaves_no_stream(client, echo_port):
    def broken():
        raise ValueError("no protocol")

    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ValueError, match="no protocol"):
            await client.create_stream(broken, ("localhost", echo_port))
        assert await client.list_streams() == []


@requirement("streams/client:open-connection")
async def test_a_name_that_is_unknown_is_said(no_leaks):
    async with (
        asyncio.timeout(PATIENCE),
        serve(stream_allow=["*.invalid:80"]) as running,
        connect(running.url) as client,
    ):
        with pytest.raises(OSError, match=r"cannot resolve nowhere\.invalid: .*[Nn]ame") as caught:
            await client.open_connection("nowhere.invalid", 80)
        assert caught.value.errno == errno.EHOSTUNREACH and "route" not in str(caught.value)


@requirement("streams/rules:loopback", "streams/rules:never")
async def test_other_hosts_are_refused_by_default(client):
    for host in ("192.0.2.1", "169.254.169.254", "[::1]".strip("[]") + "%1"):
        with pytest.raises((FloorRefused, InvalidParams)):
            await client.open_connection(host, 80)
    with pytest.raises(FloorRefused):
        await client.start_server(echo, "0.0.0.0", 0)
