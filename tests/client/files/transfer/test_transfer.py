"""Whole trees, to a server and from it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exec_server.client.client import ExecServerClient
from exec_server.client.client_session import ClientSession
from exec_server.client.files.transfer import (
    checksum,
    download,
    local_tree,
    remote_listing,
    remote_tree,
    upload,
)
from exec_server.client.files.transfer.progress import Progress
from exec_server.client.files.transfer.result import TransferResult
from exec_server.client.files.transfer.tree import TreeEntry, part_name
from exec_server.client_urls import connect
from exec_server.errors import ConnectionClosed, NotFound, ProtocolError, TransferFailed
from exec_server.limits import Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.trees import NOT_UTF8, WITH_BREAKS, make_tree
from tests.support.wire import PATIENCE

MIB = 1024 * 1024
THEN = 1_600_000_000_123_000_000


def described(root: Path | bytes, *, is_exact: bool = True) -> dict[bytes, tuple[Any, ...]]:
    """What is in a tree, but for special files; with *is_exact* also modes and times."""
    top = os.fsencode(root)
    found: dict[bytes, tuple[Any, ...]] = {b".": _described(top, is_exact)}
    for folder, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = os.path.join(folder, name)
            if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                found[os.path.relpath(path, top)] = _described(path, is_exact)
    return found


def _described(path: bytes, is_exact: bool) -> tuple[Any, ...]:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return ("link", os.readlink(path))
    attributes = (status.st_mode & 0o777, status.st_mtime_ns // 1_000_000) if is_exact else ()
    if stat.S_ISDIR(status.st_mode):
        return ("directory", *attributes)
    with open(path, "rb") as file:
        return ("file", hashlib.sha256(file.read()).digest(), *attributes)


def make_files(root: Path, count: int, size: int = 10) -> None:
    for number in range(count):
        path = root / f"d{number % 3}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))


@pytest.fixture(params=["together", "singly"])
def each_way(request, monkeypatch) -> str:
    """Small files in one stream, however few they are, and each by itself."""
    monkeypatch.setattr(upload, "PACK_FROM", 1 if request.param == "together" else 10**9)
    monkeypatch.setattr(download, "PACK_FROM", 1 if request.param == "together" else 10**9)
    way: str = request.param
    return way


@pytest.fixture
def no_commands(monkeypatch) -> None:
    """A server on which nothing can be run."""

    async def start_command(*args: Any, **options: Any) -> None:
        return None

    for module in (checksum, remote_listing, remote_tree):
        monkeypatch.setattr(module, "start_command", start_command)


# There and back.


@requirement("client/transfer:same-tree", "client/transfer:special")
async def test_a_tree_with_one_of_everything_comes_back(client, tmp_path, each_way):
    source = bytes(tmp_path / "source")
    make_tree(source)
    for name in (NOT_UTF8, *WITH_BREAKS):
        with open(os.path.join(source, b"odd", name), "wb") as file:
            file.write(name)
    os.chmod(source + b"/setuid", 0o755)
    os.chmod(source + b"/hollow", 0o555)
    there = await client.fs.upload(source, tmp_path / "there")
    assert described(tmp_path / "there") == described(source)
    back = await client.fs.download(tmp_path / "there", tmp_path / "back", verify="hash")
    assert described(tmp_path / "back") == described(source)
    assert (there.files, there.links) == (back.files, back.links) == (28, 13)
    assert sorted(remark.path for remark in there.skipped) == ["fifo", "socket"]
    assert (there.problems, there.not_kept, back.skipped, back.not_kept) == ([], set(), [], set())


_names = st.one_of(
    st.sampled_from([b"a", b"b", b"-r", b"a b", b"...", b"~", b"n" * 255, b"e\xcc\x81"]),
    st.binary(min_size=1, max_size=12),
).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"0"))
_names = _names.filter(lambda name: name not in (b".", b".."))
_times = st.integers(-(10**9), 4 * 10**9).map(lambda seconds: seconds * 10**9 + 123_456_789)
_files = st.tuples(
    st.just("file"),
    # Or so many bytes, more or less than what counts as small.
    st.one_of(st.binary(max_size=100), st.integers(250_000, 300_000)),
    st.integers(0, 0o777).map(lambda mode: mode | 0o400),
    _times,
)
_links = st.tuples(
    st.just("link"), st.binary(min_size=1, max_size=150).filter(lambda t: 0 not in t)
)
_trees: Any = st.recursive(
    st.one_of(_files, _links),
    lambda inner: st.tuples(
        st.just("directory"),
        st.dictionaries(_names, inner, max_size=6),
        st.integers(0, 0o777).map(lambda mode: mode | 0o500),
        _times,
    ),
    max_leaves=20,
)


def _build(path: bytes, node: tuple[Any, ...]) -> None:
    if node[0] == "link":
        os.symlink(node[1], path)
        return
    if node[0] == "file":
        with open(path, "wb") as file:
            file.write(os.urandom(node[1]) if isinstance(node[1], int) else node[1])
    else:
        os.mkdir(path)
        for name, inner in node[1].items():
            _build(os.path.join(path, name), inner)
    os.utime(path, ns=(node[3], node[3]))
    os.chmod(path, node[2])


@requirement("client/transfer:same-tree")
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(tree=st.dictionaries(_names, _trees, max_size=6))
async def test_any_tree_comes_back_the_same(client, each_way, tree):
    with tempfile.TemporaryDirectory() as folder:
        top = os.fsencode(folder)
        _build(top + b"/source", ("directory", tree, 0o755, THEN))
        await client.fs.upload(top + b"/source", top + b"/there")
        expected = described(top + b"/source")
        assert described(top + b"/there") == expected
        await client.fs.download(top + b"/there", top + b"/back")
        assert described(top + b"/back") == expected
        again = await client.fs.upload(top + b"/back", top + b"/there")
        assert (again.files, again.links, again.directories) == (0, 0, 0)


@requirement("client/transfer:single-file")
@pytest.mark.parametrize("size", [0, 3, MIB + 1])
async def test_a_single_file_gets_exactly_the_name(client, tmp_path, size):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    source.chmod(0o640)
    os.utime(source, ns=(THEN, THEN))
    sent = await client.fs.upload(source, tmp_path / "there", verify="hash")
    assert (sent.files, sent.bytes, sent.directories) == (1, size, 0)
    await client.fs.download(tmp_path / "there", tmp_path / "back", verify="hash")
    assert described(tmp_path / "there") == described(tmp_path / "back") == described(source)
    assert sorted(os.listdir(tmp_path)) == ["back", "source", "there"]


@requirement("client/transfer:single-file")
async def test_what_is_not_there_is_told(client, tmp_path):
    with pytest.raises(FileNotFoundError):
        await client.fs.upload(tmp_path / "missing", tmp_path / "x")
    with pytest.raises(NotFound):
        await client.fs.download(tmp_path / "missing", tmp_path / "x")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(TransferFailed, match="No such file"):
        await client.fs.upload(tmp_path / "file", tmp_path / "no" / "such" / "directory")
    with pytest.raises(OSError, match="No such file"):
        await client.fs.download(tmp_path / "file", tmp_path / "no" / "such" / "directory")


@requirement("client/transfer:same-tree")
async def test_directories_above_a_tree_are_made(client, tmp_path):
    (tmp_path / "source" / "empty").mkdir(parents=True)
    await client.fs.upload(tmp_path / "source", tmp_path / "a" / "b")
    await client.fs.download(tmp_path / "a" / "b", tmp_path / "c" / "d")
    assert described(tmp_path / "c" / "d") == described(tmp_path / "source")


# Doing it again.


@requirement("client/transfer:skip")
async def test_what_is_there_is_left_alone(client, tmp_path, each_way):
    make_files(tmp_path / "source", 20)
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    inodes = {path: path.stat().st_ino for path in (tmp_path / "there").rglob("*")}
    (tmp_path / "source" / "d1" / "f1").chmod(0o600)
    again = await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert (again.files, again.kept, again.directories) == (0, 20, 0)
    assert inodes == {path: path.stat().st_ino for path in (tmp_path / "there").rglob("*")}
    assert described(tmp_path / "there") == described(tmp_path / "source")
    await client.fs.download(tmp_path / "there", tmp_path / "back")
    (tmp_path / "there" / "d2" / "f2").chmod(0o600)
    once_more = await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert (once_more.files, once_more.kept) == (0, 20)
    assert described(tmp_path / "back") == described(tmp_path / "there")


@requirement("client/transfer:replace")
async def test_what_differs_is_replaced_and_what_is_more_stays(client, tmp_path, each_way):
    make_files(tmp_path / "source", 6)
    (tmp_path / "source" / "big").write_bytes(os.urandom(MIB))
    os.symlink("f1", tmp_path / "source" / "link")
    os.symlink("f1", tmp_path / "source" / "was_link")
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    for name in ("d1/f1", "big", "was_link"):
        (tmp_path / "source" / name).unlink()
        (tmp_path / "source" / name).write_bytes(os.urandom(300_000 if name == "big" else 9))
    (tmp_path / "source" / "link").unlink()
    os.symlink("elsewhere", tmp_path / "source" / "link")
    # A link at the destination is replaced itself; what it leads to is not touched.
    (tmp_path / "there" / "d2" / "f2").unlink()
    os.symlink(outside, tmp_path / "there" / "d2" / "f2")
    (tmp_path / "there" / "more").write_bytes(b"more")
    with open(tmp_path / "there" / "d1" / "f1", "rb") as old:
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
        # A reader that has opened the file sees the old content.
        assert len(old.read()) == 10
    there = described(tmp_path / "there")
    assert there.pop(b"more")[0] == "file"
    assert there == described(tmp_path / "source")
    assert outside.read_bytes() == b"mine"
    os.symlink(outside, tmp_path / "back")
    (tmp_path / "back").unlink()
    await client.fs.download(tmp_path / "there", tmp_path / "back")
    (tmp_path / "back" / "d2" / "f2").unlink()
    os.symlink(outside, tmp_path / "back" / "d2" / "f2")
    await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert described(tmp_path / "back") == described(tmp_path / "there")
    assert outside.read_bytes() == b"mine"


@requirement("client/transfer:skip")
async def test_directories_that_cannot_be_written_are_filled_all_the_same(client, tmp_path):
    make_files(tmp_path / "source", 3)
    for folder in ("d0", "d1", "d2"):
        (tmp_path / "source" / folder).chmod(0o500)
    for _ in range(2):
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
        await client.fs.download(tmp_path / "there", tmp_path / "back")
        assert described(tmp_path / "there") == described(tmp_path / "source")
        assert described(tmp_path / "back") == described(tmp_path / "source")
        path = tmp_path / "source" / "d0" / "new"
        path.write_bytes(b"x")


# Cuts.


async def cut_off(server: Any, fault: Fault, transfer: Callable[[ExecServerClient], Any]) -> None:
    """Begin a transfer whose connection does not last."""
    async with fault_proxy(server.url, [fault]) as proxy:
        async with connect(proxy.url, reconnect=False) as client:
            with pytest.raises(ConnectionClosed):
                await transfer(client)
        await proxy.wait(lambda proxy: proxy.is_idle)


@requirement("client/transfer:resume")
async def test_an_upload_that_was_cut_goes_on(server, client, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "big").write_bytes(os.urandom(24 * MIB))
    make_files(tmp_path / "source", 40)
    fault = Fault(20 * MIB, "up")
    await cut_off(server, fault, lambda c: c.fs.upload(tmp_path / "source", tmp_path / "there"))
    (part,) = [name for name in os.listdir(tmp_path / "there") if name.endswith(".part")]
    done = (tmp_path / "there" / part).stat().st_size
    assert 6 * MIB < done < 24 * MIB and not (tmp_path / "there" / "big").exists()
    result = await client.fs.upload(tmp_path / "source", tmp_path / "there", verify="hash")
    assert (result.kept, result.files) == (40, 1)
    # It may have been written to after we looked.
    assert result.resumed_bytes >= done
    assert described(tmp_path / "there") == described(tmp_path / "source")


@requirement("client/transfer:resume")
async def test_a_download_that_was_cut_goes_on(server, client, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "big").write_bytes(os.urandom(24 * MIB))
    make_files(tmp_path / "there", 40)
    fault = Fault(20 * MIB, "down")
    await cut_off(server, fault, lambda c: c.fs.download(tmp_path / "there", tmp_path / "back"))
    assert not (tmp_path / "back" / "big").exists()
    result = await client.fs.download(tmp_path / "there", tmp_path / "back", verify="hash")
    assert (result.kept, result.files) == (40, 1)
    assert 6 * MIB < result.resumed_bytes < 24 * MIB
    assert described(tmp_path / "back") == described(tmp_path / "there")


@requirement("client/transfer:resume")
# The first cut comes soon after the handshake, in which the server sends about 1,750 bytes.
@pytest.mark.parametrize("after", [2500, 100_000, 1_000_000, 1_850_000])
async def test_a_tree_of_small_files_may_be_cut_anywhere(server, client, tmp_path, after):
    make_files(tmp_path / "source", 60, 30_000)
    fault = Fault(after, "up")
    await cut_off(server, fault, lambda c: c.fs.upload(tmp_path / "source", tmp_path / "there"))
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert described(tmp_path / "there") == described(tmp_path / "source")
    fault = Fault(after, "down")
    await cut_off(server, fault, lambda c: c.fs.download(tmp_path / "there", tmp_path / "back"))
    await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert described(tmp_path / "back") == described(tmp_path / "source")


@requirement("client/transfer:reconnect")
async def test_a_client_that_reconnects_finishes_by_itself(server, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "big").write_bytes(os.urandom(16 * MIB))
    make_files(tmp_path / "source", 40, 20_000)
    schedule = [Fault(600_000, "up"), Fault(9 * MIB, "up"), Fault(5 * MIB, "up"), None]
    quick = Limits(recovery_pause=0.01)
    async with fault_proxy(server.url, schedule) as proxy:
        async with connect(proxy.url, limits=quick) as client:
            await client.fs.upload(tmp_path / "source", tmp_path / "there")
        assert proxy.faults == 3
    assert described(tmp_path / "there") == described(tmp_path / "source")
    schedule = [Fault(600_000, "down"), Fault(9 * MIB, "down"), Fault(5 * MIB, "down"), None]
    async with fault_proxy(server.url, schedule) as proxy:
        async with connect(proxy.url, limits=quick) as client:
            await client.fs.download(tmp_path / "there", tmp_path / "back")
        assert proxy.faults == 3
    assert described(tmp_path / "back") == described(tmp_path / "source")


@requirement("client/transfer:stale-part")
async def test_parts_that_are_not_of_this_content_are_not_continued(client, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * MIB))
    scan = local_tree.LocalTree(source).scan()
    name = os.fsdecode(part_name(scan.entries[0], b"there"))
    # As an earlier attempt would have left it, but with a hole.
    data = bytearray(source.read_bytes()[: 5 * MIB])
    data[2 * MIB : 3 * MIB] = bytes(MIB)
    (tmp_path / name).write_bytes(data)
    result = await client.fs.upload(source, tmp_path / "there")
    assert result.resumed_bytes == 0
    assert (tmp_path / "there").read_bytes() == source.read_bytes()
    # Longer than the whole.
    (tmp_path / "there").unlink()
    (tmp_path / name).write_bytes(bytes(9 * MIB))
    result = await client.fs.upload(source, tmp_path / "there")
    assert result.resumed_bytes == 0
    # Whole already, but for its name.
    (tmp_path / "there").rename(tmp_path / name)
    result = await client.fs.upload(source, tmp_path / "there")
    assert result.resumed_bytes == 8 * MIB
    assert sorted(os.listdir(tmp_path)) == ["source", "there"]
    assert described(tmp_path / "there") == described(source)
    (tmp_path / os.fsdecode(part_name(scan.entries[0], b"back"))).write_bytes(bytes(9 * MIB))
    await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert described(tmp_path / "back") == described(source)


@requirement("client/transfer:no-follow")
async def test_a_part_that_is_a_link_is_not_written_through(client, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(MIB))
    (tmp_path / "outside").write_bytes(b"mine")
    entry = local_tree.LocalTree(source).scan().entries[0]
    for name in (b"there", b"back"):
        os.symlink("outside", tmp_path / os.fsdecode(part_name(entry, name)))
    with pytest.raises(TransferFailed, match="symbolic link"):
        await client.fs.upload(source, tmp_path / "there")
    with pytest.raises(TransferFailed, match="symbolic links"):
        await client.fs.download(source, tmp_path / "back")
    assert (tmp_path / "outside").read_bytes() == b"mine"


# Verifying and reporting.


@requirement("client/transfer:verify")
async def test_other_bytes_of_the_same_size_and_time_are_found_by_content(client, tmp_path):
    make_files(tmp_path / "source", 20)
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    wrong = tmp_path / "there" / "d1" / "f4"
    before = wrong.stat()
    wrong.write_bytes(b"0123456789")
    os.utime(wrong, ns=(before.st_atime_ns, before.st_mtime_ns))
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    with pytest.raises(TransferFailed, match="d1/f4: has another content") as failed:
        await client.fs.upload(tmp_path / "source", tmp_path / "there", verify="hash")
    assert len(failed.value.result.problems) == 1
    with pytest.raises(TransferFailed, match="d1/f4"):
        await client.fs.download(tmp_path / "there", tmp_path / "source", verify="hash")


@requirement("client/transfer:verify")
async def test_contents_are_compared_without_commands_too(client, tmp_path, no_commands):
    make_files(tmp_path / "source", 5)
    (tmp_path / "source" / "odd\udcff").write_bytes(b"x")
    await client.fs.upload(tmp_path / "source", tmp_path / "there", verify="hash")


@requirement("client/transfer:verify")
async def test_what_was_lost_on_the_way_is_noticed(client, tmp_path, each_way, monkeypatch):
    make_files(tmp_path / "source", 20)
    listed = remote_tree.RemoteTree.list

    async def list_less(self: Any, **options: Any) -> Any:
        found = await listed(self, **options)
        for index, entry in enumerate(found.entries):
            if entry.path == b"d1/f4":
                found.entries[index] = TreeEntry(entry.path, "file", 9, entry.mtime_ns)
        found.entries = [entry for entry in found.entries if entry.path != b"d2/f5"]
        return found

    monkeypatch.setattr(remote_tree.RemoteTree, "list", list_less)
    with pytest.raises(TransferFailed) as failed:
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert sorted(failed.value.result.problems) == [
        ("d1/f4", "has 9 bytes on the server instead of 10"),
        ("d2/f5", "is not on the server"),
    ]


@requirement("client/transfer:changed")
async def test_files_that_change_meanwhile_are_reported(client, tmp_path, each_way, monkeypatch):
    make_files(tmp_path / "source", 5)
    for name in ("small", "large"):
        (tmp_path / "source" / name).write_bytes(bytes(10 if name == "small" else MIB))
    scan = local_tree.LocalTree.scan

    def scan_then_change(self: Any) -> Any:
        found = scan(self)
        for name in ("small", "large"):
            with open(tmp_path / "source" / name, "ab") as file:
                file.write(b"more")
        return found

    monkeypatch.setattr(local_tree.LocalTree, "scan", scan_then_change)
    with pytest.raises(TransferFailed) as failed:
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert sorted(failed.value.result.problems) == [
        ("large", "changed while it was copied"),
        ("small", "changed while it was copied"),
    ]
    assert failed.value.result.files == 5
    assert sorted(os.listdir(tmp_path / "there")) == ["d0", "d1", "d2"]


@requirement("client/transfer:changed")
async def test_files_of_the_server_that_change_are_reported(
    client, tmp_path, each_way, monkeypatch
):
    make_files(tmp_path / "there", 5)
    for name in ("small", "large"):
        (tmp_path / "there" / name).write_bytes(bytes(10 if name == "small" else MIB))
    listed = remote_tree.RemoteTree.list

    async def list_then_change(self: Any, **options: Any) -> Any:
        found = await listed(self, **options)
        for name in ("small", "large"):
            with open(tmp_path / "there" / name, "ab") as file:
                file.write(b"more")
        return found

    monkeypatch.setattr(remote_tree.RemoteTree, "list", list_then_change)
    with pytest.raises(TransferFailed) as failed:
        await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert sorted(failed.value.result.problems) == [
        ("large", "changed while it was copied"),
        ("small", "changed while it was copied"),
    ]
    assert sorted(os.listdir(tmp_path / "back")) == ["d0", "d1", "d2"]


@requirement("client/transfer:obstacles")
async def test_what_is_in_the_way_is_reported_and_the_rest_copied(client, tmp_path, each_way):
    make_files(tmp_path / "source", 6)
    (tmp_path / "outside").mkdir()
    for there in (tmp_path / "there", tmp_path / "back"):
        (there / "d1" / "f1").mkdir(parents=True)
        os.mkfifo(there / "d1" / "f4")
        os.symlink(tmp_path / "outside", there / "d2")
    with pytest.raises(TransferFailed, match="and 2 more") as failed:
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert sorted(path for path, _ in failed.value.result.problems) == ["d1/f1", "d1/f4", "d2"]
    assert failed.value.result.files == 2
    with pytest.raises(TransferFailed) as failed:
        await client.fs.download(tmp_path / "source", tmp_path / "back")
    assert sorted(path for path, _ in failed.value.result.problems) == ["d1/f1", "d1/f4", "d2"]
    assert failed.value.result.files == 2
    assert os.listdir(tmp_path / "outside") == []


@requirement("client/transfer:obstacles")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("direction", ["upload", "download"])
async def test_what_cannot_be_read_is_reported(client, no_commands, direction):
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        make_files(top / "source", 6)
        (top / "source" / "d1" / "f1").chmod(0)
        (top / "source" / "d2").chmod(0)
        os.chown(top, 65534, 65534)
        os.seteuid(65534)
        try:
            with pytest.raises(TransferFailed) as failed:
                await getattr(client.fs, direction)(top / "source", top / "there")
        finally:
            os.seteuid(0)
        result = failed.value.result
        texts = {path: text.partition(" (os error")[0] for path, text in result.problems}
        assert texts == {"d1/f1": "Permission denied", "d2": "Permission denied"}
        assert result.files == 3


@requirement("client/transfer:progress")
async def test_progress_adds_up(client, tmp_path, each_way):
    make_files(tmp_path / "source", 20, 1000)
    (tmp_path / "source" / "big").write_bytes(bytes(3 * MIB))
    seen: list[tuple[int, ...]] = []

    def note(progress: Progress) -> None:
        seen.append((progress.files, progress.bytes, progress.total_files, progress.total_bytes))

    total = 20_000 + 3 * MIB
    for transfer in (
        client.fs.upload(tmp_path / "source", tmp_path / "there", on_progress=note),
        client.fs.download(tmp_path / "there", tmp_path / "back", on_progress=note),
        client.fs.upload(tmp_path / "back", tmp_path / "there", on_progress=note),
    ):
        seen.clear()
        await transfer
        assert seen == sorted(seen) and {(t, b) for _, _, t, b in seen} == {(21, total)}
        assert seen[-1][:2] == (21, total)


@requirement("client/transfer:bounded")
async def test_large_files_are_not_held_in_memory(client, tmp_path):
    import tracemalloc

    with open(tmp_path / "source", "wb") as file:
        file.truncate(96 * MIB)
    tracemalloc.start()
    try:
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
        await client.fs.download(tmp_path / "there", tmp_path / "back")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The server is in this process, too.
    assert peak < 64 * MIB
    assert (tmp_path / "back").stat().st_size == 96 * MIB


# Servers with less.


@requirement("client/transfer:no-commands")
async def test_files_travel_without_commands(client, tmp_path, no_commands):
    make_files(tmp_path / "source", 20)
    (tmp_path / "source" / "empty").mkdir()
    (tmp_path / "source" / "big").write_bytes(os.urandom(MIB))
    os.symlink("big", tmp_path / "source" / "link")
    sent = await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert (sent.files, sent.links, sent.not_kept) == (21, 0, {"links"})
    assert [remark.path for remark in sent.skipped] == ["link"]
    expected = described(tmp_path / "source")
    del expected[b"link"]
    assert described(tmp_path / "there") == expected
    os.symlink("big", tmp_path / "there" / "link")
    got = await client.fs.download(tmp_path / "there", tmp_path / "back")
    assert (got.files, got.links, got.not_kept) == (21, 0, {"modes", "links"})
    assert [remark.path for remark in got.skipped] == ["link"]
    there = described(tmp_path / "source", is_exact=False)
    del there[b"link"]
    assert described(tmp_path / "back", is_exact=False) == there


@requirement("client/transfer:no-commands")
async def test_names_that_the_methods_spoil_are_reported(
    client, tmp_path, no_commands, monkeypatch
):
    # A server that does not list exact names.
    monkeypatch.setattr(ClientSession, "has_announced", lambda self, name: False)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "odd\udcff").write_bytes(b"x")
    with pytest.raises(TransferFailed, match="cannot be found under this name"):
        await client.fs.download(tmp_path / "there", tmp_path / "back")


@requirement("client/transfer:reference")
async def test_trees_go_to_the_reference_and_back(reference, tmp_path):
    source = bytes(tmp_path / "source")
    make_tree(source)
    os.chmod(source + b"/setuid", 0o755)
    (tmp_path / "source" / "large").write_bytes(os.urandom(3 * MIB))
    async with connect(reference.url) as client:
        sent = await client.fs.upload(source, tmp_path / "there", verify="hash")
        # Of the large files alone: what is packed keeps everything.
        assert sent.not_kept == {"modes", "times"} and sent.problems == []
        exact, there = described(source), described(tmp_path / "there")
        for name in (b"large", b"big"):
            assert there[name][:2] == exact[name][:2]
            there[name] = exact[name]
        assert there == exact
        got = await client.fs.download(source, tmp_path / "back", verify="hash")
        assert (got.not_kept, got.problems) == (set(), [])
        assert described(tmp_path / "back") == exact
        again = await client.fs.download(source, tmp_path / "back")
        assert (again.files, again.kept) == (0, got.files)


@requirement("client/transfer:archive")
async def test_archives_that_were_left_behind_are_removed(client, tmp_path):
    make_files(tmp_path / "source", 3)
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    old, new = (tmp_path / "there" / f".exec-server-{c * 32}.pack" for c in "ab")
    for path in (old, new):
        path.write_bytes(b"")
    os.utime(old, (0, 0))
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert not old.exists() and new.exists()


@requirement("client/transfer:archive", "client/transfer:no-commands")
@pytest.mark.parametrize("tool", ["tar", "find", "sh", "sha256sum"])
async def test_any_tool_may_be_missing_on_the_server(tmp_path, tool, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in {"tar", "find", "sh", "sha256sum", "ln", "rm", "printf"} - {tool}:
        found = shutil.which(name)
        assert found is not None
        os.symlink(found, tools / name)
    monkeypatch.setenv("PATH", str(tools))
    make_files(tmp_path / "source", 20)
    async with serve() as server, connect(server.url) as client:
        for name in ("first", "second"):
            (tmp_path / "source" / name).write_bytes(b"x")
            await client.fs.upload(tmp_path / "source", tmp_path / "there", verify="hash")
            await client.fs.download(tmp_path / "there", tmp_path / "back", verify="hash")
    assert described(tmp_path / "there") == described(tmp_path / "source")
    is_exact = tool != "find"
    expected = described(tmp_path / "source", is_exact=is_exact)
    assert described(tmp_path / "back", is_exact=is_exact) == expected


# Servers that are not to be trusted.


class Hostile:
    """Answers what it is asked with what a test makes up."""

    def __init__(self, answers: dict[str, Any], output: bytes = b"") -> None:
        self.answers = answers
        self.output = output

    async def play(self, talk: Talk) -> None:
        info = {"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": {}}
        await talk.shake_hands({"sessionId": "s", "environmentInfo": info})
        while True:
            request = await talk.receive()
            if request["method"] == "process/start" and self.output:
                await self.run(talk, request)
            elif request["method"] in self.answers:
                await talk.answer(request, self.answers[request["method"]])
            else:
                await talk.refuse(request, -32601, "no such method")

    async def run(self, talk: Talk, request: dict[str, Any]) -> None:
        name = request["params"]["processId"]
        await talk.answer(request, {"processId": name, "sandboxType": "none"})
        if request["params"]["argv"][0] == "find":
            await talk.output(name, 1, self.output)
        await talk.event("process/exited", name, seq=2, exitCode=0)
        await talk.event("process/closed", name, seq=3)


DIRECTORY = {"isDirectory": True, "isFile": False}
ROOT = {"fs/canonicalize": {"path": "file:///x"}, "fs/getMetadata": DIRECTORY}
EVIL = {"fs/readFile": {"dataBase64": base64.b64encode(b"evil").decode()}}


@asynccontextmanager
async def hostile(answers: dict[str, Any], output: bytes = b"") -> AsyncIterator[ExecServerClient]:
    server = Hostile(ROOT | EVIL | answers, output)
    async with fake_server(server.play) as url, connect(url, reconnect=False) as client:
        yield client


def record(kind: str, path: bytes, target: bytes = b"") -> bytes:
    return b"%b 755 4 1600000000.5 %b\0%b\0" % (kind.encode(), path, target)


@requirement("client/transfer:no-traversal")
@pytest.mark.parametrize("name", [b"../evil", b"a/../../evil", b"/evil", b"..", b".", b"a//b"])
async def test_a_listing_cannot_lead_outside(tmp_path, name):
    output = record("d", b"") + record("f", name)
    async with hostile({}, output) as client:
        with pytest.raises(ProtocolError, match="the server names a file"):
            await client.fs.download("/x", tmp_path / "in" / "back")
    assert list(tmp_path.rglob("*")) == []


@requirement("client/transfer:no-traversal")
@pytest.mark.parametrize("name", ["../evil", "/evil", "..", "a/b", "", "a\0b"])
async def test_names_of_the_methods_cannot_lead_outside(tmp_path, name):
    entry = {"fileName": name, "isDirectory": False, "isFile": True}
    async with hostile({"fs/readDirectory": {"entries": [entry]}}) as client:
        with pytest.raises(ProtocolError, match="the server names a file"):
            await client.fs.download("/x", tmp_path / "in" / "back")
    assert list(tmp_path.rglob("*")) == []


@requirement("client/transfer:no-traversal", "client/transfer:no-follow")
async def test_a_link_in_a_listing_is_no_way_out(tmp_path):
    (tmp_path / "outside").mkdir()
    outside = os.fsencode(tmp_path / "outside")
    output = record("d", b"") + record("l", b"way", outside) + record("f", b"way/evil")
    async with hostile({}, output) as client:
        for _ in range(2):
            with pytest.raises(TransferFailed, match="way/evil"):
                await client.fs.download("/x", tmp_path / "back")
    assert os.listdir(outside) == []
    assert os.readlink(tmp_path / "back" / "way") == str(tmp_path / "outside")


@requirement("client/transfer:no-traversal")
@pytest.mark.parametrize(
    "output",
    [
        b"nonsense\0\0",
        record("d", b"") + b"f 644 x 1.5 a\0\0",
        record("d", b"") + b"f 644 4 1.5 a\0",
        record("d", b"") + b"f 999 4 1.5 a\0\0",
    ],
)
async def test_a_listing_that_is_none_is_refused(tmp_path, output):
    async with hostile({}, output) as client:
        with pytest.raises(ProtocolError):
            await client.fs.download("/x", tmp_path / "back")


@requirement("client/transfer:no-follow")
async def test_links_of_this_machine_are_not_followed(client, tmp_path, each_way):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    (tmp_path / "source").mkdir()
    os.symlink(tmp_path / "outside", tmp_path / "source" / "way")
    result: TransferResult = await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert (result.files, result.links) == (0, 1)
    assert os.readlink(tmp_path / "there" / "way") == str(tmp_path / "outside")


@requirement("client/transfer:no-follow")
async def test_the_root_may_be_a_link(client, tmp_path):
    make_files(tmp_path / "real", 3)
    os.symlink("real", tmp_path / "link")
    (tmp_path / "target").mkdir()
    os.symlink("target", tmp_path / "to_target")
    await client.fs.upload(tmp_path / "link", tmp_path / "to_target")
    assert described(tmp_path / "target") == described(tmp_path / "real")
    await client.fs.download(tmp_path / "to_target", tmp_path / "back")
    assert described(tmp_path / "back") == described(tmp_path / "real")


@requirement("client/transfer:changed")
async def test_a_transfer_can_be_cancelled(client, tmp_path):
    make_files(tmp_path / "source", 100, 10_000)
    (tmp_path / "source" / "big").write_bytes(bytes(8 * MIB))
    begun = asyncio.Event()
    task = asyncio.create_task(
        client.fs.upload(tmp_path / "source", tmp_path / "there", on_progress=lambda _: begun.set())
    )
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert described(tmp_path / "there") == described(tmp_path / "source")
