"""OpenSSH on the ssh door: a server of its own process, and one ssh connection for many tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import ServerProcess, start_server
from tests.support.ssh_host import SshHost, needed, place_for_sockets


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
