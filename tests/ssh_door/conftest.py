"""OpenSSH on the ssh door: a server of its own process, and one ssh connection for many tests."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.support.servers import ServerProcess, start_server
from tests.support.ssh_host import PATIENCE, SshHost, needed, place_for_sockets


@pytest.fixture(scope="module")
def ssh_server() -> Iterator[ServerProcess]:
    needed("ssh")
    with start_server("--listen", "ws://127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def unshared(ssh_server: ServerProcess) -> Iterator[SshHost]:
    """A host to which each command has a connection of its own."""
    with place_for_sockets() as place:
        yield SshHost(place, ssh_server.url)


@pytest.fixture(scope="module")
def host(ssh_server: ServerProcess) -> Iterator[SshHost]:
    """A host with a master connection, which all tests of a module share."""
    with place_for_sockets() as place:
        found = SshHost(place, ssh_server.url)
        with found.master():
            yield found


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """Say everything again, and something more after the end."""
        self.request.settimeout(PATIENCE)
        while data := self.request.recv(65536):
            self.request.sendall(data)
        self.request.sendall(b"bye")


class _Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64
    daemon_threads = True
    block_on_close = True


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that repeats what it hears."""
    with _Server(("127.0.0.1", 0), _Echo) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()
