"""Open files of the sftp subsystem, by themselves: clients ask without waiting for answers."""

from __future__ import annotations

import asyncio
import os

import pytest
from asyncssh import FXF_CREAT, FXF_READ, FXF_TRUNC, FXF_WRITE, SFTPAttrs

from exec_server.client.client import ExecServerClient
from exec_server.client.files.file_streams import BLOCK_BYTES
from exec_server.client_urls import connect
from exec_server.ssh_door.sftp_files import SftpFile
from exec_server.ssh_door.sftp_server import RemoteSftp
from exec_server.ssh_door.target import DoorTarget
from tests.requirements import requirement
from tests.support.sftp import NoChannel
from tests.support.wire import PATIENCE

SIZE = 9 * BLOCK_BYTES + 1000


@requirement("ssh:sftp")
async def test_many_reads_at_once_all_get_an_answer(server, tmp_path):
    content = os.urandom(SIZE)
    (tmp_path / "file").write_bytes(content)
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        file = SftpFile(client.fs, os.fsencode(tmp_path / "file"), "read")
        await file.open()
        starts = range(0, SIZE, BLOCK_BYTES // 2)
        parts = await asyncio.gather(*(file.read(at, BLOCK_BYTES // 2) for at in starts))
        assert b"".join(parts) == content
        await file.close()


@requirement("ssh:sftp")
async def test_many_writes_at_once_in_any_order_are_all_done_in_their_places(server, tmp_path):
    content = os.urandom(SIZE)
    size = BLOCK_BYTES // 3
    starts = list(range(0, SIZE, size))
    # The second half comes first, so that the order breaks in the middle of a full window.
    starts = [*starts[len(starts) // 2 :], *starts[: len(starts) // 2]]
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        file = SftpFile(client.fs, os.fsencode(tmp_path / "file"), "replace")
        await file.open()
        await asyncio.gather(*(file.write(at, content[at : at + size]) for at in starts))
        await file.close()
    assert (tmp_path / "file").read_bytes() == content


@requirement("ssh:sftp-written")
async def test_a_write_that_is_answered_is_in_the_file(server, tmp_path):
    """sshfs closes a program's file as soon as its writes are answered."""
    path = tmp_path / "file"
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        file = SftpFile(client.fs, os.fsencode(path), "replace")
        await file.open()
        await file.write(0, b"one ")
        assert path.read_bytes() == b"one "
        await asyncio.gather(file.write(4, b"two "), file.write(8, b"three"))
        assert path.read_bytes() == b"one two three"
        await file.close()


@requirement("ssh:sftp-written")
async def test_of_two_writes_to_one_place_the_later_one_counts(server, tmp_path):
    path = tmp_path / "file"
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        file = SftpFile(client.fs, os.fsencode(path), "replace")
        await file.open()
        await asyncio.gather(*(file.write(0, bytes([n]) * 1000) for n in range(50)))
        await file.close()
    assert path.read_bytes() == bytes([49]) * 1000


@requirement("ssh:sftp-written")
async def test_a_write_that_fails_is_told_to_its_writer(server, tmp_path):
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        file = SftpFile(client.fs, os.fsencode(tmp_path / "file"), "replace")
        await file.open()
        assert file._handle is not None
        await client.fs.close(file._handle)
        (tmp_path / "file").unlink()
        (tmp_path / "file").mkdir()
        with pytest.raises(Exception, match=r"[Dd]irectory"):
            await file.write(0, b"x")


@requirement("ssh:sftp")
async def test_a_file_that_is_emptied_and_can_be_read_has_nothing_of_its_old_content(
    server, tmp_path
):
    """As `open("w+")` of paramiko and asyncssh asks: read, write, create and truncate."""
    path = tmp_path / "file"
    path.write_bytes(b"a longer content")
    inode = path.stat().st_ino

    async def client() -> ExecServerClient:
        return connected

    async with asyncio.timeout(PATIENCE), connect(server.url) as connected:
        sftp = RemoteSftp(NoChannel(), DoorTarget(client))
        await sftp.connect()
        flags = FXF_READ | FXF_WRITE | FXF_CREAT | FXF_TRUNC
        file = await sftp.open(os.fsencode(path), flags, SFTPAttrs())
        assert path.read_bytes() == b""
        await file.write(0, b"short")
        assert await file.read(0, 100) == b"short"
        await file.close()
    assert path.read_bytes() == b"short"
    assert path.stat().st_ino == inode
