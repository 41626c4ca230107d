"""A connection of ssh goes on when its session on the server is lost: the next channel gets one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from asyncssh import FXF_READ, FXF_WRITE, SFTPAttrs, SFTPConnectionLost

from exec_server import connect
from exec_server.ssh_door.door_clients import DoorClients
from exec_server.ssh_door.sftp_files import SftpFile
from exec_server.ssh_door.sftp_server import RemoteSftp
from exec_server.ssh_door.target import DoorTarget
from tests.requirements import requirement
from tests.support.durable import StateServers, until
from tests.support.ports import free_port
from tests.support.sftp import NoChannel
from tests.support.ssh_host import PATIENCE, SshHost, needed, place_for_sockets


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[StateServers]:
    needed("ssh")
    servers = StateServers(tmp_path / "state", "--listen", f"ws://127.0.0.1:{free_port()}")
    with contextlib.closing(servers):
        yield servers


def said_by(port: int) -> bytes:
    """What the echo at the other end of a forward answers to one word; nothing without one."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sock:
            sock.sendall(b"word")
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while data := sock.recv(100):
                answer += data
            return answer
    except OSError:
        return b""


@requirement("ssh:new-session")
async def test_a_master_serves_commands_and_forwards_after_the_session_was_lost(servers, echo):
    with place_for_sockets() as place:
        host = SshHost(place, servers.url)
        here, there = free_port(), free_port()
        with host.master():
            host.ssh("-O", "forward", "-L", f"{here}:127.0.0.1:{echo}", "build")
            host.ssh("-O", "forward", "-R", f"{there}:127.0.0.1:{echo}", "build")
            assert host.ssh("build", "echo before").stdout == b"before\n"
            assert said_by(here) == said_by(there) == b"wordbye"
            servers.restart(signal.SIGKILL)
            # The first channel may be the one that hears of the loss.
            subprocess.run(
                ["ssh", *host.options, "build", "true"], env=host.env, check=False, timeout=PATIENCE
            )
            assert host.ssh("build", "echo after").stdout == b"after\n"
            assert said_by(here) == b"wordbye"
            await until(lambda: said_by(there) == b"wordbye")


@requirement("ssh:new-session")
def test_a_master_connection_that_found_no_server_finds_one_later(servers):
    with place_for_sockets() as place:
        host = SshHost(place, servers.url)
        servers.kill()
        with host.master():
            assert b"Connection refused" in host.ssh("build", "true", status=255).stderr
            servers.start()
            assert host.ssh("build", "echo after").stdout == b"after\n"


@requirement("ssh:new-session")
async def test_an_open_file_goes_on_in_another_session(servers, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    async with DoorClients.opened(lambda: connect(servers.url), 128) as clients:
        first = await clients.client()
        sftp = RemoteSftp(NoChannel(), DoorTarget(clients.client, file_place=clients.file_place))
        await sftp.connect()
        name = os.fsencode(path)
        file = await sftp.open(name, FXF_READ | FXF_WRITE, SFTPAttrs())
        assert await file.read(0, 3) == b"012"
        servers.restart(signal.SIGKILL)
        await first.wait_closed()
        await file.write(3, b"XY")
        assert await file.read(2, 4) == b"2XY5"
        await file.close()
        assert (await sftp.stat(name)).size == 10
        assert await clients.client() is not first
    assert path.read_bytes() == b"012XY56789"


@requirement("ssh:new-session")
async def test_a_file_call_without_a_server_is_told_as_a_lost_connection(servers, tmp_path):
    async with DoorClients.opened(lambda: connect(servers.url), 10) as clients:
        sftp = RemoteSftp(NoChannel(), DoorTarget(clients.client, file_place=clients.file_place))
        await sftp.connect()
        servers.kill()
        with pytest.raises(SFTPConnectionLost):
            await sftp.stat(os.fsencode(tmp_path))
            await sftp.stat(os.fsencode(tmp_path))


@requirement("ssh:sftp-many-files")
async def test_more_files_are_open_than_one_connection_to_the_server_allows(server, tmp_path):
    async with DoorClients.opened(lambda: connect(server.url), 128) as clients:
        client = await clients.client()
        files = []
        for number in range(300):
            path = tmp_path / str(number)
            path.write_bytes(b"%d" % number)
            file = SftpFile(client.fs, os.fsencode(path), "read", place=clients.file_place())
            await file.open()
            path.unlink()
            files.append(file)
        # Each one is still the file that was opened, although its name is gone.
        for number, file in enumerate(files):
            assert await file.read(0, 10) == b"%d" % number
        for file in files:
            await file.close()
        again = SftpFile(client.fs, os.fsencode(__file__), "read", place=clients.file_place())
        await again.open()
        await again.close()
