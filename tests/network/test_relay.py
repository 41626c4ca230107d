"""Bytes from one socket to another."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct

import pytest

from exec_server.network import relay
from tests.requirements import requirement
from tests.support.wire import PATIENCE


@pytest.fixture
def ends():
    """Two pairs of TCP sockets: bytes moved between the inner ends show at the outer ones."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sockets = []
        for _ in range(2):
            sockets.append(socket.create_connection(server.getsockname()))
            sockets.append(server.accept()[0])
    for sock in sockets:
        sock.setblocking(False)
    yield sockets
    for sock in sockets:
        sock.close()


async def receive(sock, count):
    loop = asyncio.get_running_loop()
    data = bytearray()
    while len(data) < count and (more := await loop.sock_recv(sock, 1 << 16)):
        data += more
    return bytes(data)


@pytest.mark.parametrize("size", [1, 70_000, 5_000_000])
@requirement("network/relay:bytes")
async def test_what_is_sent_arrives_however_much_it_is(no_leaks, ends, size):
    near, inner, other, far = ends
    data = os.urandom(size)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.sock_sendall(near, data + b"more"))
        moving = tasks.create_task(relay.move(inner, other, count=size, idle=5))
        assert await receive(far, size) == data
    assert moving.result() == size
    # Bytes after the count are left alone.
    assert await receive(inner, 4) == b"more"


@requirement("network/relay:reset")
async def test_a_reset_is_seen_behind_what_came_before_it(no_leaks, ends):
    near, inner, other, far = ends
    data = os.urandom(200_000)
    await asyncio.get_running_loop().sock_sendall(near, data)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    select_error(inner)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConnectionResetError):
            await relay.move(inner, other, idle=PATIENCE)
        other.close()
        assert data.startswith(await receive(far, len(data)))


def select_error(sock: socket.socket) -> None:
    """Block until the reset has arrived."""
    poll = select.poll()
    poll.register(sock, 0)
    assert poll.poll(PATIENCE * 1000)


@requirement("network/relay:bytes")
async def test_both_ways_at_once(no_leaks, ends):
    near, inner, other, far = ends
    loop = asyncio.get_running_loop()
    up, down = os.urandom(2_000_000), os.urandom(3_000_000)

    async def send(sock, data):
        await loop.sock_sendall(sock, data)
        sock.shutdown(socket.SHUT_WR)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(relay.tunnel(inner, other, idle=5))
        tasks.create_task(send(near, up))
        tasks.create_task(send(far, down))
        got_up = tasks.create_task(receive(far, len(up) + 1))
        got_down = tasks.create_task(receive(near, len(down) + 1))
    assert (got_up.result(), got_down.result()) == (up, down)


@requirement("network/relay:bytes")
async def test_a_reader_that_takes_nothing_holds_the_sender_back(no_leaks, ends):
    near, inner, other, _ = ends
    loop = asyncio.get_running_loop()
    moving = asyncio.ensure_future(relay.move(inner, other, idle=60))
    sending = asyncio.ensure_future(loop.sock_sendall(near, bytes(64 << 20)))
    # Only the kernel's buffers and one pipe hold bytes.
    done, _ = await asyncio.wait({sending, moving}, timeout=0.3)
    assert not done
    for task in (sending, moving):
        task.cancel()
    await asyncio.wait({sending, moving})


@requirement("network/relay:bytes")
async def test_an_end_before_the_count_is_told(no_leaks, ends):
    near, inner, other, _ = ends
    near.send(b"abc")
    near.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(PATIENCE):
        assert await relay.move(inner, other, count=10, idle=5) == 3


@requirement("network/proxy:limits")
async def test_silence_is_an_error(no_leaks, ends):
    with pytest.raises(relay.Idle):
        await relay.tunnel(ends[1], ends[2], idle=0.02)
