"""`client.fs`: the typed calls."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.files.file_methods import FileMethods
from exec_server.client.files.link_methods import LinkMethods
from exec_server.client_urls import connect
from exec_server.errors import (
    ConnectionClosed,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotFound,
)
from exec_server.protocol import fs
from exec_server.protocol.method import Method
from exec_server.protocol.paths import to_uri
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.wire import PATIENCE

INFO = {"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///srv"}
OURS = dict.fromkeys(["fsRename", "fsSetPermissions", "fsAppend", "fsAtomicWrite"], True)
KNOWING = {"sessionId": "s", "environmentInfo": INFO | {"capabilities": OURS}}


@asynccontextmanager
async def heard(
    answers: dict[str, Any], *, result: dict[str, Any] | None = None
) -> AsyncIterator[tuple[ExecServerClient, list[dict[str, Any]]]]:
    """A client of a server that gives fixed answers, and what that server was asked."""
    requests: list[dict[str, Any]] = []

    async def script(talk: Talk) -> None:
        await talk.shake_hands(KNOWING if result is None else result)
        while True:
            request = await talk.receive()
            requests.append(request)
            await talk.answer(request, answers.get(request["method"], {}))

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        yield client, requests


# All of them.


@requirement("client/fs:every-method")
def test_every_method_is_called_somewhere():
    source = inspect.getsource(FileMethods) + inspect.getsource(LinkMethods)
    methods = [name for name, value in vars(fs).items() if isinstance(value, Method)]
    assert len(methods) >= 17
    assert [name for name in methods if f"fs.{name}," not in source] == []


@requirement("client/fs:every-method", "client/fs:paths")
async def test_files_are_written_read_and_removed(client, tmp_path):
    path = tmp_path / "file"
    await client.fs.write_file(path, b"one")
    assert await client.fs.append(path, b" two") == 7
    assert await client.fs.read_file(str(path)) == b"one two"
    assert await client.fs.read_file(os.fsencode(path)) == b"one two"
    assert await client.fs.read_file(to_uri(bytes(path))) == b"one two"
    assert await client.fs.read_file(client.fs.path(str(path))) == b"one two"
    found = await client.fs.get_metadata(path)
    assert (found.is_file, found.is_directory, found.size) == (True, False, 7)
    assert await client.fs.exists(path)
    await client.fs.remove(path)
    assert not await client.fs.exists(path)
    await client.fs.remove(path, force=True)
    with pytest.raises(NotFound):
        await client.fs.remove(path)


@requirement("client/fs:every-method")
async def test_handles_read_and_write_blocks(client, tmp_path):
    writing = await client.fs.open(tmp_path / "file", mode="replace")
    await client.fs.write_block(writing, 0, b"hello")
    await client.fs.close(writing)
    reading = await client.fs.open(tmp_path / "file")
    assert await client.fs.read_block(reading, 1, 3) == (b"ell", False)
    assert await client.fs.read_block(reading, 3, 9) == (b"lo", True)
    await client.fs.close(reading)
    with pytest.raises(NotFound, match="unknown file handle"):
        await client.fs.read_block(reading, 0, 1)


@requirement("client/fs:every-method", "client/fs:paths")
async def test_directories_are_made_listed_walked_and_copied(client, tmp_path):
    await client.fs.create_directory(tmp_path / "a" / "b", recursive=True)
    await client.fs.write_file(tmp_path / "a" / "b" / "caf\xe9", b"x")
    with pytest.raises(InternalError):
        await client.fs.create_directory(tmp_path / "a")
    (entry,) = await client.fs.read_directory(tmp_path / "a")
    assert (entry.file_name, entry.is_directory) == ("b", True)
    await client.fs.copy(tmp_path / "a", tmp_path / "c", recursive=True)
    outcome = await client.fs.walk(tmp_path)
    assert [os.path.relpath(entry.path, tmp_path) for entry in outcome.entries] == [
        *("a", "c", "a/b", "c/b", "a/b/caf\xe9", "c/b/caf\xe9"),
    ]
    assert (outcome.errors, outcome.truncated) == ([], False)
    with pytest.raises(InternalError):
        await client.fs.remove(tmp_path / "c")
    await client.fs.remove(tmp_path / "c", recursive=True)
    assert os.listdir(tmp_path) == ["a"]
    assert (await client.fs.walk(tmp_path, max_depth=0, max_entries=1)).entries[0].kind == (
        "directory"
    )


@requirement("client/fs:every-method")
async def test_names_and_attributes_change(client, tmp_path):
    (tmp_path / "old").write_bytes(b"x")
    (tmp_path / "there").write_bytes(b"y")
    await client.fs.rename(tmp_path / "old", tmp_path / "new")
    with pytest.raises(InternalError):
        await client.fs.rename(tmp_path / "new", tmp_path / "there", overwrite=False)
    await client.fs.set_permissions(tmp_path / "new", mode=0o640, modified=12.345, accessed=-1.5)
    found = os.stat(tmp_path / "new")
    assert found.st_mode & 0o777 == 0o640
    assert (found.st_mtime_ns, found.st_atime_ns) == (12_345_000_000, -1_500_000_000)
    os.symlink("new", tmp_path / "link")
    assert await client.fs.canonicalize(tmp_path / "link") == str(tmp_path / "new")
    with pytest.raises(InvalidRequest):
        await client.fs.get_metadata(tmp_path / "link", follow_symlinks=False)
    await client.fs.write_file(tmp_path / "new", b"whole", atomic=True)
    assert (tmp_path / "link").read_bytes() == b"whole"


@requirement("client/fs:paths")
async def test_names_that_are_not_text_are_names_too(client, tmp_path):
    path = bytes(tmp_path) + b"/\xff\xfe \n%41"
    await client.fs.write_file(path, b"x")
    assert os.listdir(bytes(tmp_path)) == [b"\xff\xfe \n%41"]
    assert await client.fs.read_file(os.fsdecode(path)) == b"x"
    assert os.fsencode(await client.fs.canonicalize(path)) == path


@requirement("client/fs:paths")
async def test_what_can_be_no_path_is_refused_here(client):
    with pytest.raises(ValueError, match="not an absolute path"):
        await client.fs.read_file("/a\0b")
    with pytest.raises(InvalidParams):
        await client.fs.read_file("file:///a?b")


@requirement("client/fs:paths")
async def test_a_path_of_another_platform_is_told_as_it_is():
    answers = {"fs/canonicalize": {"path": "file:///C:/x"}}
    async with heard(answers) as (client, requests):
        assert await client.fs.canonicalize("file:///C:/x") == "file:///C:/x"
    assert requests[0]["params"] == {"path": "file:///C:/x"}


@requirement("client/fs:relative")
async def test_a_relative_path_is_seen_from_the_servers_directory(client):
    assert await client.fs.canonicalize(".") == os.getcwd()
    async with heard({}) as (other, requests):
        await other.fs.write_file("sub/file", b"")
    assert requests[0]["params"]["path"] == "file:///srv/sub/file"


@requirement("client/fs:wire")
async def test_members_are_sent_as_the_reference_sends_them():
    async with heard({"fs/getMetadata": {"isDirectory": True, "isFile": False}}) as (
        client,
        requests,
    ):
        await client.fs.remove("/a")
        await client.fs.create_directory("/a b", follow_symlinks=False)
        assert (await client.fs.get_metadata("/a")).size == 0
        await client.fs.copy("/a", "/b")
    assert [request["params"] for request in requests] == [
        {"path": "file:///a", "recursive": False, "force": False},
        {"path": "file:///a%20b", "recursive": False, "followSymlinks": False},
        {"path": "file:///a"},
        {"sourcePath": "file:///a", "destinationPath": "file:///b", "recursive": False},
    ]


@requirement("client/fs:old-dialect")
async def test_servers_without_sessions_are_sent_native_paths():
    async with heard({"fs/readFile": {"dataBase64": "eA=="}}, result={}) as (client, requests):
        assert await client.fs.read_file("/srv/a b") == b"x"
    assert requests[0]["params"] == {"path": "/srv/a b"}


@requirement("client/fs:sandbox")
async def test_a_sandbox_goes_with_every_request():
    sandbox = {"type": "read-only"}
    async with heard({"fs/readFile": {"dataBase64": ""}}) as (client, requests):
        files = client.fs.sandboxed(sandbox)
        await files.read_file("/a")
        await files.write_file("/a", b"")
        await files.remove("/a")
        await files.rename("/a", "/b")
    assert [request["params"]["sandbox"] for request in requests] == [sandbox] * 4


# Errors.


@requirement("client/fs:errors")
async def test_errors_are_the_servers(client, tmp_path):
    with pytest.raises(NotFound, match=r"\(os error 2\)"):
        await client.fs.read_file(tmp_path / "missing")
    with pytest.raises(InvalidRequest, match="is not a file"):
        await client.fs.read_file(tmp_path)
    with pytest.raises(InternalError, match=r"\(os error 21\)"):
        await client.fs.write_file(tmp_path, b"")


@requirement("client/fs:errors")
async def test_a_call_fails_with_its_connection():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.expect("fs/readFile")
        await talk.socket.close()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        with pytest.raises(ConnectionClosed):
            await client.fs.read_file("/a")


@requirement("client/fs:gated")
async def test_what_the_server_does_not_offer_is_not_asked_for():
    async with heard({}, result={"sessionId": "s", "environmentInfo": INFO}) as (client, requests):
        for refused, capability in [
            (client.fs.rename("/a", "/b"), "fsRename"),
            (client.fs.set_permissions("/a", mode=0o600), "fsSetPermissions"),
            (client.fs.append("/a", b""), "fsAppend"),
            (client.fs.write_file("/a", b"", atomic=True), "fsAtomicWrite"),
            (client.fs.open("/a", mode="replace"), "fileWriteStreaming"),
            (client.fs.watch_missing(["/a"]), "fsWatchMissing"),
        ]:
            with pytest.raises(MethodNotFound, match=f"does not offer {capability}"):
                await refused
    assert requests == []


@requirement("client/fs:gated")
async def test_a_server_that_tells_nothing_offers_nothing():
    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        await talk.refuse(await talk.expect("environment/info"), -32601, "no such method")
        await talk.gone()

    async with fake_server(script) as url, connect(url) as client:
        with pytest.raises(MethodNotFound):
            await client.fs.write_bytes("/a", b"", atomic=True)


# By size.


@requirement("client/fs:by-size")
@pytest.mark.parametrize("size", [0, 5, 9 * 1024 * 1024])
async def test_small_and_large_contents_are_whole(client, tmp_path, size):
    data = os.urandom(size)
    await client.fs.write_bytes(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data
    assert await client.fs.read_bytes(tmp_path / "file") == data


@requirement("client/fs:by-size")
async def test_files_that_do_not_say_their_size_are_read(client):
    assert await client.fs.read_text("/proc/version") == Path("/proc/version").read_text()


@requirement("client/fs:by-size")
async def test_one_message_has_a_bound(client, tmp_path):
    with pytest.raises(InvalidRequest, match="use write_stream"):
        await client.fs.write_file(tmp_path / "file", bytes(48 * 1024 * 1024))


# Watching.


@requirement("client/fs:watch")
async def test_a_missing_file_is_waited_for(client, tmp_path):
    watch = await client.fs.watch_missing([tmp_path / "a", tmp_path / "b"])
    assert watch is not None
    changed = asyncio.create_task(watch.changed())
    (tmp_path / "b").write_text("")
    async with asyncio.timeout(PATIENCE):
        await changed
    await watch.changed()
    assert await client.fs.watch_missing([tmp_path / "b"]) is None
    again = await client.fs.watch_missing([tmp_path / "c"], present=tmp_path / "b")
    assert again is not None
    (tmp_path / "b").unlink()
    async with asyncio.timeout(PATIENCE):
        await again.changed()


@requirement("client/fs:watch")
async def test_a_watch_ends_with_its_connection(server, tmp_path):
    async with connect(server.url) as client:
        watch = await client.fs.watch_missing([tmp_path / "a"])
    assert watch is not None
    with pytest.raises(ConnectionClosed):
        await watch.changed()


# The reference.


@requirement("client/fs:reference")
async def test_the_calls_work_with_the_reference(reference, tmp_path):
    async with connect(reference.url) as client:
        files = client.fs
        await files.create_directory(tmp_path / "a" / "b", recursive=True)
        await files.write_text(tmp_path / "a" / "t\xe4xt", "w\xf6rd")
        assert await files.read_text(tmp_path / "a" / "t\xe4xt") == "w\xf6rd"
        await files.copy(tmp_path / "a", tmp_path / "c", recursive=True)
        assert [entry.kind for entry in (await files.walk(tmp_path)).entries] == [
            *("directory", "directory", "directory", "file", "directory", "file"),
        ]
        assert await files.canonicalize(tmp_path / "a") == str(tmp_path / "a")
        data = os.urandom(9 * 1024 * 1024)
        await files.write_bytes(tmp_path / "large", data)
        assert await files.read_bytes(tmp_path / "large") == data
        assert {entry.file_name for entry in await files.read_directory(tmp_path)} == {
            *("a", "c", "large"),
        }
        watch = await files.watch_missing([tmp_path / "new"])
        assert watch is not None
        (tmp_path / "new").write_text("")
        async with asyncio.timeout(PATIENCE):
            await watch.changed()
        with pytest.raises(NotFound):
            await files.get_metadata(tmp_path / "missing")
        with pytest.raises(MethodNotFound):
            await files.rename(tmp_path / "a", tmp_path / "b")
        await files.remove(tmp_path / "c", recursive=True)
        assert sorted(os.listdir(tmp_path)) == ["a", "large", "new"]
