"""Connections that send no request, and the clients beside them."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator

import msgspec
import pytest

from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.servers import OURS, start_server
from tests.support.wire import Wire

DESCRIPTORS = 256
WITH_FEW_DESCRIPTORS = [
    sys.executable,
    "-c",
    "import os, resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); "
    "os.execv(sys.argv[1], sys.argv[1:])",
    *OURS,
]


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("ws://").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def strangers(url: str, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    """*count* connections that say at most the beginning of a request."""
    with contextlib.ExitStack() as held:
        sockets = []
        for _ in range(count):
            sock = held.enter_context(socket.create_connection(address_of(url), timeout=10))
            with contextlib.suppress(ConnectionError):
                sock.sendall(said)
            sockets.append(sock)
        yield sockets


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(60)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.one_loop
@requirement("listen:waiting-connections")
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_commands_of_clients_run_while_strangers_fill_the_port(said, tmp_path):
    (tmp_path / "file").write_text("content")
    with start_server(command=WITH_FEW_DESCRIPTORS) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            for turn in range(3):
                with strangers(server.url, 2 * DESCRIPTORS, said):
                    for number in range(10):
                        done = await wire.run(f"p{turn}-{number}", ["echo", "done"])
                        assert done.stdout == b"done\n"
                        await wire.call("fs/readFile", {"path": f"file://{tmp_path}/file"})
                    async with Wire(server.url) as late:
                        await late.initialize()


@requirement("listen:waiting-connections")
async def test_the_connection_that_has_waited_longest_gives_way(no_leaks):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, waiting_connections=3)
    async with serve(limits=limits) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            with strangers(server.url, 3) as (first, second, third):
                # It arrives after the three, so that these were accepted before.
                async with Wire(server.url) as late:
                    await late.initialize()
                    assert is_closed(first)
                    for sock in (second, third):
                        sock.setblocking(False)
                        with pytest.raises(BlockingIOError):
                            sock.recv(1)
            # An open WebSocket does not wait, and is never in the way.
            assert (await wire.run("p", ["echo", "served"])).stdout == b"served\n"
