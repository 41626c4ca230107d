"""What others may not read when it is copied, they cannot read while it is copied."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.files.transfer.local_tree import LocalTree
from exec_server.client.files.transfer.remote_tree import RemoteTree
from exec_server.client.files.transfer.tree import part_name
from exec_server.client_urls import connect
from tests.requirements import requirement
from tests.support.wire import PATIENCE

MIB = 1024 * 1024
SECRET = b"a secret of its owner"


def readable(root: Path) -> list[str]:
    """The files at and below *root* that others can read, and have something of the secret."""
    found = []
    for above, names, files in os.walk(root):
        names[:] = [name for name in names if mode_of(Path(above) / name) & 0o001]
        for name in files:
            path = Path(above) / name
            # What a thread renames meanwhile is looked at under its next name.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mode & 0o044 and SECRET in path.read_bytes():
                    found.append(str(path))
    return found


def mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


@pytest.fixture
def seen(monkeypatch, tmp_path) -> list[str]:
    """What others could read at any moment of an upload: it is looked at after each request."""
    leaked: list[str] = []
    call = RemoteFiles._call

    async def looked(self: RemoteFiles, method: Any, params: Any) -> Any:
        try:
            return await call(self, method, params)
        finally:
            leaked.extend(readable(tmp_path / "there"))

    monkeypatch.setattr(RemoteFiles, "_call", looked)
    return leaked


@pytest.fixture
def source(tmp_path) -> Path:
    root: Path = tmp_path / "here"
    (root / "closed").mkdir(parents=True)
    for number in range(20):
        (root / f"small{number}").write_bytes(SECRET)
    (root / "large").write_bytes(SECRET + os.urandom(2 * MIB))
    for path in root.iterdir():
        path.chmod(0o600 if path.is_file() else 0o700)
    # Its directory alone keeps others from it.
    (root / "closed" / "open").write_bytes(SECRET + os.urandom(MIB))
    return root


@requirement("fs.transfer:private")
async def test_an_upload_is_never_readable_for_others(server, tmp_path, source, seen):
    (tmp_path / "there").mkdir()
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        await client.fs.upload(source, tmp_path / "there" / "tree")
        # Again, over what is there: with changes of a large file, and a few small ones.
        with open(source / "large", "ab") as file:
            file.write(os.urandom(MIB))
        (source / "small1").write_bytes(SECRET + b"2")
        await client.fs.upload(source, tmp_path / "there" / "tree")
        await client.fs.upload(source / "small2", tmp_path / "there" / "one")
    assert seen == []
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "there").rglob("*")}
    assert (modes["one"], modes["large"], modes["closed"]) == (0o600, 0o600, 0o700)


@requirement("fs.transfer:private")
async def test_an_open_root_does_not_open_its_files(server, tmp_path, source, seen, monkeypatch):
    source.chmod(0o755)
    packs: list[int] = []
    start = RemoteTree.start

    async def looked(self: RemoteTree, *argv: bytes, **options: Any) -> Any:
        packs.extend(path.stat().st_mode & 0o777 for path in tmp_path.glob("there/tree/.*.pack"))
        return await start(self, *argv, **options)

    monkeypatch.setattr(RemoteTree, "start", looked)
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        await client.fs.upload(source, tmp_path / "there" / "tree")
    assert seen == []
    assert 0o600 in packs


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@requirement("fs.transfer:private")
@pytest.mark.parametrize("name", ["large", "small0"])
async def test_nothing_is_written_to_a_part_of_another_user(server, tmp_path, source, name):
    """In a directory such as /tmp another user can make a part first; its name can be guessed."""
    there = tmp_path / "there"
    there.mkdir()
    (entry,) = LocalTree(source / name).scan().entries
    planted = there / os.fsdecode(part_name(entry, name.encode()))
    planted.touch(0o666)
    os.chown(planted, 65534, 65534)
    with open(planted, "rb") as stranger:
        async with asyncio.timeout(PATIENCE), connect(server.url) as client:
            await client.fs.download(source / name, there / name)
        assert stranger.read() == b""
    assert (there / name).read_bytes() == (source / name).read_bytes()
    found = (there / name).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (os.geteuid(), 0o600)


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A directory such as /tmp."""
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o1777)
    return there


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@requirement("fs.transfer:private")
@pytest.mark.parametrize("content", [b"", b"not ours", SECRET])
@pytest.mark.parametrize("mode", [0o600, 0o644])
async def test_nothing_is_sent_to_a_part_of_another_user(server, source, everybodys, content, mode):
    (source / "large").chmod(mode)
    (entry,) = LocalTree(source / "large").scan().entries
    planted = everybodys / os.fsdecode(part_name(entry, b"large"))
    planted.write_bytes(content)
    os.chown(planted, 65534, 65534)
    with open(planted, "rb") as stranger:
        async with asyncio.timeout(PATIENCE), connect(server.url) as client:
            await client.fs.upload(source / "large", everybodys / "large")
        assert stranger.read() == content
    assert (everybodys / "large").read_bytes() == (source / "large").read_bytes()
    found = (everybodys / "large").stat()
    assert (found.st_uid, found.st_mode & 0o777) == (os.geteuid(), mode)
    assert os.listdir(everybodys) == ["large"]


@requirement("fs.transfer:private")
@pytest.mark.parametrize("how", ["link", "hard link"])
async def test_nothing_is_sent_to_what_a_part_leads_to(server, tmp_path, source, everybodys, how):
    (entry,) = LocalTree(source / "large").scan().entries
    planted = everybodys / os.fsdecode(part_name(entry, b"large"))
    (tmp_path / "other").write_text("other")
    planted.symlink_to("../other") if how == "link" else planted.hardlink_to(tmp_path / "other")
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        await client.fs.upload(source / "large", everybodys / "large")
    assert (tmp_path / "other").read_text() == "other"
    assert (everybodys / "large").read_bytes() == (source / "large").read_bytes()
    assert os.listdir(everybodys) == ["large"]


@requirement("fs.transfer:private")
async def test_an_own_part_in_a_directory_of_everybody_is_continued(server, source, everybodys):
    (entry,) = LocalTree(source / "large").scan().entries
    begun = everybodys / os.fsdecode(part_name(entry, b"large"))
    begun.write_bytes((source / "large").read_bytes()[: entry.size // 2])
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        done = await client.fs.upload(source / "large", everybodys / "large")
    assert done.resumed_bytes == entry.size // 2
    assert (everybodys / "large").read_bytes() == (source / "large").read_bytes()


@requirement("fs.transfer:private")
async def test_a_download_is_never_readable_for_others(server, tmp_path, source, monkeypatch):
    leaked: list[str] = []
    fchmod = os.fchmod

    def looked(fd: int, mode: int) -> None:
        leaked.extend(readable(tmp_path / "there"))
        fchmod(fd, mode)

    # A part is complete when it gets its mode. The root is open as long as it is filled.
    monkeypatch.setattr(os, "fchmod", looked)
    (tmp_path / "there").mkdir()
    source.chmod(0o755)
    async with asyncio.timeout(PATIENCE), connect(server.url) as client:
        await client.fs.download(source, tmp_path / "there")
        (source / "large").write_bytes((source / "large").read_bytes() + os.urandom(MIB))
        await client.fs.download(source, tmp_path / "there")
    assert leaked == []
    parts = [path for path in (tmp_path / "there").rglob("*") if path.suffix == ".part"]
    assert parts == []
