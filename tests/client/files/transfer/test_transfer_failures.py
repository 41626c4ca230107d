"""Transfers when helpers die, disks are full and connections are cut again and again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.files.remote_files import RemoteFiles
from exec_server.client.files.transfer import local_tree
from exec_server.client_urls import connect
from exec_server.errors import NotFound, ProcessFailed, TransferFailed
from exec_server.limits import Limits
from exec_server.server.serving import serve
from tests.client.files.transfer.test_transfer import described, make_files
from tests.requirements import requirement
from tests.support.fault_proxy import Fault, fault_proxy
from tests.support.servers import OURS, start_server

MIB = 1024 * 1024
LIMIT = 100 * 1024

# A program that does its work in part and dies, or ends with a status.
DYING = """#!{python}
import os, subprocess, sys
out = subprocess.run([{real!r}, *sys.argv[1:]], stdin=sys.stdin, stdout=subprocess.PIPE).stdout
fields = out.split(b"\\0")
sys.stdout.buffer.write(b"\\0".join(fields[:{fields}]) + b"\\0")
sys.stdout.flush()
{end}
"""


def replace_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, end: str) -> None:
    """Put a program before the real one that prints only its first records."""
    real = shutil.which(name)
    assert real is not None
    place = tmp_path / "bin" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(DYING.format(python=sys.executable, real=real, fields=20, end=end))
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit(1)", "sys.exit(2)"])
@pytest.mark.parametrize("verify", ["size", "hash"])
@requirement("client/transfer:helper-status")
async def test_a_listing_that_ends_early_fails_the_copy(tmp_path, monkeypatch, end, verify):
    make_files(tmp_path / "there", 50)
    replace_tool(tmp_path, monkeypatch, "find", end)
    async with serve() as server, connect(server.url) as client:
        with pytest.raises(ProcessFailed, match="is not complete: find"):
            await client.fs.download(tmp_path / "there", tmp_path / "back", verify=verify)
        with pytest.raises(ProcessFailed, match="is not complete: find"):
            await client.fs.upload(tmp_path / "there", tmp_path / "there", verify=verify)


@requirement("client/transfer:helper-status")
async def test_sums_of_a_program_that_died_are_made_by_reading(tmp_path, monkeypatch):
    make_files(tmp_path / "there", 50)
    replace_tool(tmp_path, monkeypatch, "sha256sum", "os.kill(os.getpid(), 9)")
    async with serve() as server, connect(server.url) as client:
        result = await client.fs.download(tmp_path / "there", tmp_path / "back", verify="hash")
    assert result.files == 50
    assert described(tmp_path / "back") == described(tmp_path / "there")


# A full disk.


@pytest.fixture
async def limited(tmp_path) -> AsyncIterator[str]:
    """A server that cannot write files of more than LIMIT bytes, as if its disk were full."""
    program = (
        "import os, resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT})); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with start_server(command=[sys.executable, "-c", program, *OURS]) as running:
        yield running.url


@requirement("client/transfer:full-disk")
@pytest.mark.parametrize("count", [5, 60])
@pytest.mark.one_loop
async def test_what_does_not_fit_is_named_and_leaves_nothing(limited, tmp_path, count):
    source, there = tmp_path / "source", tmp_path / "there"
    make_files(source, count, LIMIT // 4)
    for name, size in (("large", MIB), ("medium", 2 * LIMIT)):
        (source / name).write_bytes(os.urandom(size))
    async with connect(limited) as client:
        with pytest.raises(TransferFailed) as caught:
            await client.fs.upload(source, there)
    problems = {each.path: each.text for each in caught.value.result.problems}
    assert set(problems) == {"large", "medium"}
    assert all("File too large" in text for text in problems.values())
    left = {path: facts for path, facts in described(there).items() if facts[0] == "file"}
    whole = {path: facts for path, facts in described(source).items() if facts[0] == "file"}
    del whole[b"large"], whole[b"medium"]
    assert left == whole


@requirement("client/transfer:full-disk")
async def test_a_full_disk_here_leaves_no_part(client, tmp_path, monkeypatch):
    (tmp_path / "there").write_bytes(os.urandom(4 * MIB))
    (tmp_path / "back").mkdir()

    def write_all(fd: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_tree, "write_all", write_all)
    with pytest.raises(TransferFailed, match="No space left on device"):
        await client.fs.download(tmp_path / "there", tmp_path / "back" / "file")
    assert os.listdir(tmp_path / "back") == []


# What earlier attempts have left.


@requirement("client/transfer:leftovers")
async def test_parts_of_other_versions_are_removed(client, tmp_path):
    source, there = tmp_path / "source", tmp_path / "there"
    for path in (source / "sub", there / "sub"):
        path.mkdir(parents=True)
    (source / "sub" / "big").write_bytes(os.urandom(MIB))
    (source / "small").write_bytes(b"small")
    for name in ("sub/big.00112233.part", "small.44556677.part"):
        (there / name).write_bytes(b"of an older version")
    # These may be files of the user.
    for name in ("other.00112233.part", "big.part"):
        (there / name).write_bytes(b"mine")
    await client.fs.upload(source, there)
    found = sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
    assert found == ["big.part", "other.00112233.part", "small", "sub/big"]
    back = tmp_path / "back"
    (back / "sub").mkdir(parents=True)
    (back / "sub" / "big.00112233.part").write_bytes(b"of an older version")
    await client.fs.download(source, back)
    assert described(back) == described(source)


@requirement("client/transfer:leftovers")
async def test_archives_of_the_same_source_are_removed_at_once(client, tmp_path, monkeypatch):
    make_files(tmp_path / "source", 40)
    real = RemoteFiles.remove

    async def remove(*args: Any, **options: Any) -> None:
        if not args[1].endswith(b".pack"):
            await real(*args, **options)

    with monkeypatch.context() as patch:
        # As if the program had been killed before it removes them.
        patch.setattr(RemoteFiles, "remove", remove)
        await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert list((tmp_path / "there").glob(".exec-server-*.pack"))
    await client.fs.upload(tmp_path / "source", tmp_path / "there")
    assert described(tmp_path / "there") == described(tmp_path / "source")


# Cut connections.


@requirement("client/transfer:reconnect")
@pytest.mark.parametrize("direction", ["up", "down"])
async def test_any_number_of_cuts_is_survived_while_there_is_progress(server, tmp_path, direction):
    (tmp_path / "source").write_bytes(os.urandom(80 * MIB))
    schedule = [*(Fault(9 * MIB, direction) for _ in range(16)), None]
    async with fault_proxy(server.url, schedule) as proxy:
        async with connect(proxy.url, limits=Limits(recovery_pause=0.01)) as client:
            if direction == "up":
                await client.fs.upload(tmp_path / "source", tmp_path / "copy")
            else:
                await client.fs.download(tmp_path / "source", tmp_path / "copy")
        assert proxy.faults > 10
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["copy", "source"]


@requirement("client/transfer:reconnect")
@pytest.mark.parametrize("method", ["read_block", "write_block"])
async def test_a_file_that_the_server_has_closed_is_opened_again(
    client, tmp_path, monkeypatch, method
):
    (tmp_path / "source").write_bytes(os.urandom(12 * MIB))
    calls = 0
    real = getattr(RemoteFiles, method)

    async def sometimes(self: RemoteFiles, handle_id: str, *rest: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise NotFound(f"unknown file handle `{handle_id}`")
        return await real(self, handle_id, *rest)

    monkeypatch.setattr(RemoteFiles, method, sometimes)
    if method == "read_block":
        await client.fs.download(tmp_path / "source", tmp_path / "copy")
    else:
        await client.fs.upload(tmp_path / "source", tmp_path / "copy")
    assert calls > 6
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()


# What is told.


@requirement("client/transfer:told")
async def test_a_missing_source_is_named_by_its_path(client, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        await client.fs.upload(tmp_path / "nope", tmp_path / "there")
    assert caught.value.filename == str(tmp_path / "nope")


@requirement("client/transfer:told")
async def test_a_file_without_a_size_is_told(client, tmp_path):
    with pytest.raises(TransferFailed, match=r"its size is not known before it is read"):
        await client.fs.upload("/proc/self/status", tmp_path / "there")
    with pytest.raises(TransferFailed, match=r"its size is not known before it is read"):
        await client.fs.download("/proc/self/status", tmp_path / "back")
    assert os.listdir(tmp_path) == []


# What earlier attempts have left.


@requirement("client/transfer:leftovers")
@pytest.mark.parametrize("is_there", [False, True])
async def test_a_single_file_that_changed_leaves_no_part_of_its_old_version(
    client, tmp_path, is_there
):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(MIB))
    kept = {"there.1234567.part", "there.12345678.part.txt", "another.12345678.part"}
    for copy, name in ((client.fs.upload, "up"), (client.fs.download, "down")):
        folder = tmp_path / name
        folder.mkdir()
        for stale in ("there.12345678.part", "there.abcdef00.part", *kept):
            (folder / stale).write_bytes(b"a part")
        if is_there:
            (folder / "there").write_bytes(b"old")
        await copy(source, folder / "there")
        assert set(os.listdir(folder)) == {"there", *kept}


@requirement("client/transfer:no-commands", "client/transfer:same-tree")
async def test_names_that_are_not_text_are_copied_without_find(tmp_path, monkeypatch):
    source = tmp_path / "source"
    inner = Path(os.fsdecode(os.path.join(os.fsencode(source), b"d\xff")))
    inner.mkdir(parents=True)
    odd = Path(os.fsdecode(os.path.join(os.fsencode(inner), b"f\xfe\xfd")))
    odd.write_bytes(b"content")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    async with serve() as server, connect(server.url) as client:
        await client.fs.download(source, tmp_path / "back")
        await client.fs.upload(source, tmp_path / "there")
        async with serve() as other, connect(other.url) as second:
            await second.fs.download(tmp_path / "there", tmp_path / "again")
    for copy in ("back", "there", "again"):
        assert described(tmp_path / copy, is_exact=False) == described(source, is_exact=False)
