"""Ports that are open on a loopback are for their own user, and not for all users of a machine."""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import pytest

from exec_server.client.streams.forwards import listening_socket
from exec_server.client.streams.preview_front import PreviewFront
from exec_server.client.streams.stream_place import StreamPlace
from exec_server.client_urls import connect
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.wire import PATIENCE

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell the user")

STRANGER = 65534
# Connects as another user, says something, and prints what comes back.
CALLER = """
import os, socket, sys
uid, port, said = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
os.setgroups([]), os.setgid(uid), os.setuid(uid)
try:
    with socket.socket() as sock:
        sock.settimeout(60)
        sock.connect(("127.0.0.1", port))
        sock.sendall(said)
        print(sock.recv(100).hex())
except ConnectionError:
    print()
"""


async def answer(port: int, uid: int, said: bytes = b"hello") -> bytes:
    """What a user gets who says something at *port*."""
    child = await asyncio.create_subprocess_exec(
        "/usr/bin/env",
        *("python3", "-I", "-c", CALLER, str(uid), str(port), said.hex()),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    return bytes.fromhex(output.decode())


@pytest.fixture
async def echo_port():
    async with listening(echo) as port:
        yield port


@as_root
@requirement("streams/rules:other-users")
async def test_a_forward_serves_its_own_user(no_leaks, echo_port):
    reports: list[str] = []
    async with asyncio.timeout(PATIENCE), serve() as running, connect(running.url) as client:
        to = ("localhost", echo_port)
        async with await client.forward(0, to, on_error=reports.append) as forward:
            port = int(forward.address[1])
            assert await answer(port, STRANGER) == b""
            assert await answer(port, os.geteuid()) == b"hello"
        assert reports == [
            f"a connection of another user of this machine (uid {STRANGER}) is refused"
        ]
        async with await client.forward(0, to, allow_other_users=True) as forward:
            assert await answer(int(forward.address[1]), STRANGER) == b"hello"
        async with await client.forward_socks(0) as socks:
            assert await answer(int(socks.address[1]), STRANGER, b"\5\1\0") == b""
            assert await answer(int(socks.address[1]), os.geteuid(), b"\5\1\0") == b"\5\0"


@as_root
@requirement("streams/rules:other-users")
async def test_a_preview_serves_its_own_user(no_leaks, echo_port):
    async with asyncio.timeout(PATIENCE), serve() as running, connect(running.url) as client:
        sock = await listening_socket(StreamPlace("127.0.0.1", 0))
        async with client.forward_with(
            lambda owner: PreviewFront(owner, sock, "lab", {echo_port}, None)
        ) as front:
            port = int(front.address[1])
            head = f"GET / HTTP/1.1\r\nHost: p{echo_port}.lab.localhost:{port}\r\n\r\n".encode()
            assert await answer(port, STRANGER, head) == b""
            assert (await answer(port, os.geteuid(), head)).startswith(b"GET / HTTP/1.1\r\n")


@as_root
@pytest.mark.parametrize(("allow", "gets"), [([], b""), (["listen:127.0.0.1:*"], b"hello")])
@requirement("streams/rules:other-users")
async def test_a_port_of_the_server_serves_the_user_of_the_server(no_leaks, allow, gets):
    async with (
        asyncio.timeout(PATIENCE),
        serve(stream_allow=allow) as running,
        connect(running.url) as client,
        await client.start_server(echo) as server,
    ):
        port = int(server.address[1])
        assert await answer(port, STRANGER) == gets
        assert await answer(port, os.geteuid()) == b"hello"


@requirement("streams/rules:other-users")
async def test_an_address_beyond_the_loopback_is_for_all(no_leaks, echo_port):
    async with asyncio.timeout(PATIENCE), serve() as running, connect(running.url) as client:
        async with await client.forward(("0.0.0.0", 0), ("localhost", echo_port)) as forward:
            with socket.create_connection(("127.0.0.1", int(forward.address[1]))) as sock:
                sock.sendall(b"hello")
                assert await asyncio.to_thread(sock.recv, 100) == b"hello"
                if os.geteuid() == 0:
                    assert await answer(int(forward.address[1]), STRANGER) == b"hello"


@as_root
@requirement("streams/rules:other-users")
async def test_a_loopback_in_the_form_of_ipv6_is_a_loopback_too(no_leaks, echo_port):
    async with asyncio.timeout(PATIENCE), serve() as running, connect(running.url) as client:
        to = ("localhost", echo_port)
        async with await client.forward(("::ffff:127.0.0.1", 0), to) as forward:
            port = int(forward.address[1])
            assert await answer(port, STRANGER) == b""
            assert await answer(port, os.geteuid()) == b"hello"
