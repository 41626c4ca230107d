"""Whole files: fs/readFile, fs/writeFile, fs/append."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from exec_server.limits import MIB, Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.files import (
    FAILED,
    INVALID,
    NOT_FOUND,
    REFUSED,
    code,
    encoded,
    open_descriptors,
    read,
    until,
    uri,
    write,
)
from tests.support.raw import CONTINUATION, TEXT, RawSocket
from tests.support.wire import PATIENCE, Wire

# The file has megabytes, but its size is reported as 0.
LARGE_PSEUDO_FILE = Path("/proc/kallsyms")


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4096, 65_536, 786_432, 786_433, 1 << 20, 3 << 20])
@requirement("fs/readFile:content", "fs/writeFile:in-place")
async def test_what_is_written_is_read(wire, tmp_path, size):
    data = os.urandom(size)
    # The file is new, then replaced by the same content, then by a shorter one.
    for content in (data, data, data[: size // 2]):
        await write(wire, tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
        assert await read(wire, tmp_path / "file") == content
        assert await read(wire, tmp_path / "file", followSymlinks=False) == content


@pytest.mark.skipif(not LARGE_PSEUDO_FILE.exists(), reason="there is no large pseudo file")
@pytest.mark.parametrize("params", [{}, {"followSymlinks": False}, {"atomic": True}], ids=str)
@requirement("fs/writeFile:in-place", "fs/writeFile:base64")
async def test_what_is_long_is_written_piece_by_piece(wire, tmp_path, params):
    data = os.urandom(5 * MIB + 1)
    await write(wire, tmp_path / "file", data, **params)
    assert (tmp_path / "file").read_bytes() == data
    # The base64 is wrong only near its end, and the file is not touched.
    text = encoded(data)[:-8] + "????" + encoded(data)[-4:]
    error = {"path": uri(tmp_path / "file"), "dataBase64": text, **params}
    assert await code(wire, "fs/writeFile", error) == REFUSED
    assert (tmp_path / "file").read_bytes() == data


@requirement("fs/readFile:pseudo-files")
async def test_a_file_that_says_it_is_empty_is_read_to_its_end(wire):
    assert os.stat("/proc/version").st_size == 0
    assert await read(wire, "/proc/version") == Path("/proc/version").read_bytes()
    large = await read(wire, LARGE_PSEUDO_FILE)
    assert large.count(b"\n") == LARGE_PSEUDO_FILE.read_bytes().count(b"\n")


@requirement("fs/readFile:limit")
async def test_a_file_beyond_the_limit_is_refused_by_its_size(wire, tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(512 * MIB + 1)
    error = await wire.error("fs/readFile", {"path": uri(tmp_path / "huge")})
    assert error["code"] == REFUSED
    assert error["message"].startswith("file is too large to read: limit is 536870912 bytes")
    assert "fs/open" in error["message"]
    assert "fs/readBlock" in error["message"]
    nofollow = {"path": uri(tmp_path / "huge"), "followSymlinks": False}
    assert await wire.error("fs/readFile", nofollow) == error


@pytest.mark.skipif(not LARGE_PSEUDO_FILE.exists(), reason="there is no large pseudo file")
@requirement("fs/readFile:limit")
async def test_a_file_beyond_the_limit_is_refused_while_it_is_read(tmp_path):
    size = len(LARGE_PSEUDO_FILE.read_bytes())
    async with serve(limits=Limits(read_file_bytes=size // 2)) as server, Wire(server.url) as wire:
        await wire.initialize()
        error = await wire.error("fs/readFile", {"path": uri(LARGE_PSEUDO_FILE)})
    assert error["code"] == REFUSED
    assert error["message"].startswith("file is too large to read")


@requirement("fs/readFile:large")
async def test_a_large_answer_comes_in_frames_that_everybody_takes(server, tmp_path):
    data = os.urandom(16 * MIB)
    (tmp_path / "large").write_bytes(data)
    async with RawSocket(server.url) as sock:
        await sock.upgrade()
        await sock.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
        await sock.receive_json()
        await sock.send_json({"method": "initialized"})
        params = {"path": uri(tmp_path / "large")}
        await sock.send_json({"id": 2, "method": "fs/readFile", "params": params})
        await sock.send_json({"id": 3, "method": "environment/status"})
        frames = [await sock.receive_frame()]
        while not frames[-1].fin:
            frames.append(await sock.receive_frame())
        assert (await sock.receive_json())["id"] == 3
    assert [frame.opcode for frame in frames] == [TEXT, CONTINUATION]
    assert len(frames[0].payload) == 16 * MIB
    message = json.loads(b"".join(frame.payload for frame in frames))
    assert base64.b64decode(message["result"]["dataBase64"]) == data


@requirement("fs/readFile:errors")
async def test_what_is_no_file_is_refused_at_once(wire, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "link", Path("/dev/zero")):
        error = await wire.error("fs/readFile", {"path": uri(path)})
        assert error == {"code": REFUSED, "message": f"path `{path}` is not a file"}


@requirement("fs/writeFile:in-place")
async def test_writing_keeps_the_file_it_writes_to(wire, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"old and long")
    file.chmod(0o4750)
    os.link(file, tmp_path / "other name")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "to nothing").symlink_to("made")
    before = file.stat()
    await write(wire, tmp_path / "link", b"new")
    after = file.stat()
    assert (after.st_ino, after.st_nlink) == (before.st_ino, 2)
    assert (tmp_path / "other name").read_bytes() == b"new"
    await write(wire, tmp_path / "to nothing", b"made")
    assert (tmp_path / "made").read_bytes() == b"made"


@pytest.mark.parametrize("size", [10, 100_000])
@requirement("fs/writeFile:in-place")
async def test_a_new_file_gets_the_usual_mode(wire, tmp_path, size):
    before = os.umask(0o027)
    try:
        await write(wire, tmp_path / "new", bytes(size))
        await write(wire, tmp_path / "newer", bytes(size), followSymlinks=False)
        await write(wire, tmp_path / "newest", bytes(size), atomic=True)
    finally:
        os.umask(before)
    for name in ("new", "newer", "newest"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640


BAD_BASE64 = ["?", "QQ", "QQ=", "QR==", "Q Q=", "=QQ=", "QQ==\n", "QUI-", "QUI_", "QQ==QQ=="]


@pytest.mark.parametrize("text", [*BAD_BASE64, *("A" * 40_000 + text for text in BAD_BASE64)])
@requirement("fs/writeFile:base64")
async def test_bad_base64_touches_nothing(wire, tmp_path, text):
    (tmp_path / "file").write_text("old")
    for path in (tmp_path / "file", tmp_path / "new", tmp_path / "no" / "parent"):
        error = await wire.error("fs/writeFile", {"path": uri(path), "dataBase64": text})
        assert error["code"] == REFUSED
        assert error["message"].startswith("fs/writeFile requires valid base64 dataBase64: ")
    foreign = {"path": "file://host/x", "dataBase64": text}
    assert "base64" in (await wire.error("fs/writeFile", foreign))["message"]
    assert (tmp_path / "file").read_text() == "old"
    assert not (tmp_path / "new").exists()


@requirement("fs/writeFile:errors")
async def test_a_missing_parent_is_not_made(wire, tmp_path):
    for size in (1, 100_000):
        data = encoded(bytes(size))
        params = {"path": uri(tmp_path / "no" / "file"), "dataBase64": data}
        assert await code(wire, "fs/writeFile", params) == NOT_FOUND
        params = {"path": uri(tmp_path), "dataBase64": data}
        assert await code(wire, "fs/writeFile", params) == FAILED
    assert os.listdir(tmp_path) == []


@requirement("fs/writeFile:device")
async def test_a_device_is_written_through(wire):
    await write(wire, "/dev/null", b"gone")
    params = {"path": "file:///dev/full", "dataBase64": "eA=="}
    error = await wire.error("fs/writeFile", params)
    assert error == {"code": FAILED, "message": "No space left on device (os error 28)"}


# FIFOs.


async def read_fifo(path: Path) -> bytes:
    return await asyncio.to_thread(path.read_bytes)


@requirement("fs/writeFile:fifo")
async def test_a_fifo_gets_everything_once_it_is_read(wire, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    # This is far more than a pipe can hold, and than is decoded at once.
    data = os.urandom(3 << 20)
    params = {"path": uri(tmp_path / "fifo"), "dataBase64": encoded(data)}
    request = await wire.request("fs/writeFile", params)
    assert await read_fifo(tmp_path / "fifo") == data
    assert (await wire.answer(request))["result"] == {}


@requirement("fs/writeFile:fifo")
async def test_a_reader_that_leaves_is_an_error(wire, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    params = {"path": uri(tmp_path / "fifo"), "dataBase64": encoded(bytes(1 << 20))}
    request = await wire.request("fs/writeFile", params)
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(BlockingIOError):
                if os.read(reader, 1000):
                    break
            await asyncio.sleep(0)
    os.close(reader)
    error = (await wire.answer(request))["error"]
    assert error == {"code": FAILED, "message": "Broken pipe (os error 32)"}


@requirement("fs/writeFile:fifo", "fs:serial")
async def test_waiting_for_a_reader_holds_up_one_connection_only(server, wire, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    params = {"path": uri(tmp_path / "fifo"), "dataBase64": encoded(b"now")}
    writing = await wire.request("fs/writeFile", params)
    behind = await wire.request("environment/status")
    async with Wire(server.url) as other:
        await other.initialize()
        await write(other, tmp_path / "file", b"meanwhile")
        assert await read(other, tmp_path / "file") == b"meanwhile"
        await other.call("fs/readDirectory", {"path": uri(tmp_path)})
    assert wire.unread == []
    assert await read_fifo(tmp_path / "fifo") == b"now"
    first = await wire.receive()
    assert first["id"] == writing
    assert (await wire.answer(behind))["result"] == {"status": "ready"}


def threads_named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@pytest.mark.parametrize("is_read", [False, True])
@requirement("fs/writeFile:fifo")
async def test_a_client_that_leaves_ends_the_wait(server, tmp_path, is_read):
    os.mkfifo(tmp_path / "fifo")
    before = open_descriptors()
    reader = -1
    async with Wire(server.url) as wire:
        await wire.initialize()
        if is_read:
            reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        params = {"path": uri(tmp_path / "fifo"), "dataBase64": encoded(bytes(1 << 20))}
        await wire.request("fs/writeFile", params)
        await until(lambda: threads_named("exec-server fifo") == 1)
        wire.cut()
        await until(lambda: threads_named("exec-server fifo") == 0)
    if is_read:
        os.close(reader)
    assert open_descriptors() <= before


@requirement("fs/writeFile:special-bounded")
async def test_waiting_writes_are_bounded_and_take_no_thread_from_others(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    params = {"path": uri(tmp_path / "fifo"), "dataBase64": "eA=="}
    tight = Limits(special_writes=2, file_threads=1, file_threads_each=1)
    async with (
        serve(limits=tight) as server,
        Wire(server.url) as first,
        Wire(server.url) as second,
        Wire(server.url) as third,
    ):
        for wire in (first, second, third):
            await wire.initialize()
        for wire in (first, second):
            await wire.request("fs/writeFile", params)
        await until(lambda: threads_named("exec-server fifo") == 2)
        assert await code(third, "fs/writeFile", params) == FAILED
        # The only thread for all other calls is free.
        assert (await third.call("fs/readDirectory", {"path": uri(tmp_path)}))["entries"]
        first.cut()
        second.cut()
        await until(lambda: threads_named("exec-server fifo") == 0)


# Atomic writes.


@requirement("fs/writeFile:atomic")
async def test_an_atomic_write_replaces_the_file_and_keeps_its_mode(wire, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o6751)
    inode = file.stat().st_ino
    with file.open("rb") as still_open:
        await write(wire, file, b"new", atomic=True)
        # A program that has the file open reads the old content to its end.
        assert still_open.read() == b"old"
    assert file.read_bytes() == b"new"
    assert file.stat().st_ino != inode
    assert stat.S_IMODE(file.stat().st_mode) == 0o6751
    assert os.listdir(tmp_path) == ["file"]


@requirement("fs/writeFile:atomic")
async def test_an_atomic_write_through_links_leaves_the_links(wire, tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").write_bytes(b"old")
    (tmp_path / "far").symlink_to("dir")
    (tmp_path / "link").symlink_to("far/other")
    (tmp_path / "dir" / "other").symlink_to("file")
    (tmp_path / "to nothing").symlink_to("dir/made")
    await write(wire, tmp_path / "link", b"new", atomic=True)
    await write(wire, tmp_path / "to nothing", b"made", atomic=True)
    assert (tmp_path / "dir" / "file").read_bytes() == b"new"
    assert (tmp_path / "dir" / "made").read_bytes() == b"made"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dir" / "other").is_symlink()
    assert sorted(os.listdir(tmp_path / "dir")) == ["file", "made", "other"]


@requirement("fs/writeFile:atomic")
async def test_an_atomic_write_may_refuse_links(wire, tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "far").symlink_to("dir")
    for path in (tmp_path / "link", tmp_path / "far" / "new"):
        params = {"path": uri(path), "dataBase64": "", "atomic": True, "followSymlinks": False}
        assert await code(wire, "fs/writeFile", params) == FAILED
    await write(wire, tmp_path / "file", b"new", atomic=True, followSymlinks=False)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path / "dir") == []


@requirement("fs/writeFile:atomic-fails-whole")
async def test_an_atomic_write_that_fails_leaves_everything_as_it_was(wire, tmp_path):
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")

    async def fails(path: Path) -> int:
        params = {"path": uri(path), "dataBase64": "eA==", "atomic": True}
        return await code(wire, "fs/writeFile", params)

    assert await fails(tmp_path / "dir") == FAILED
    assert await fails(Path("/")) == FAILED
    assert await fails(tmp_path / "fifo") == REFUSED
    assert await fails(tmp_path / "loop") == FAILED
    assert await fails(tmp_path / "no" / "parent") == NOT_FOUND
    assert await fails(tmp_path / ("x" * 256)) == FAILED
    assert sorted(os.listdir(tmp_path)) == ["dir", "fifo", "loop"]


@requirement("fs/writeFile:atomic-fails-whole")
async def test_a_disk_that_is_full_leaves_the_old_file(wire, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")

    def fails(fd: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", fails)
    params = {"path": uri(tmp_path / "file"), "dataBase64": "eA==", "atomic": True}
    assert await code(wire, "fs/writeFile", params) == FAILED
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


# Appending.


@pytest.mark.parametrize("follow", [True, False])
@requirement("fs/append:result")
async def test_appending_adds_to_the_end(wire, tmp_path, follow):
    params = {"path": uri(tmp_path / "log"), "dataBase64": encoded(b"one\n")}
    params["followSymlinks"] = follow
    assert await code(wire, "fs/append", {**params, "create": False}) == NOT_FOUND
    assert await wire.call("fs/append", params) == {"size": 4}
    assert await wire.call("fs/append", {**params, "create": False}) == {"size": 8}
    with (tmp_path / "log").open("ab") as file:
        file.write(b"else\n")
    large = {**params, "dataBase64": encoded(bytes(100_000))}
    assert await wire.call("fs/append", large) == {"size": 100_013}
    assert (tmp_path / "log").read_bytes() == b"one\none\nelse\n" + bytes(100_000)


@requirement("fs/append:result")
async def test_only_regular_files_are_appended_to(wire, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("target")
    data = {"dataBase64": "eA=="}
    assert await code(wire, "fs/append", {"path": "file:///dev/null", **data}) == REFUSED
    assert await code(wire, "fs/append", {"path": uri(tmp_path / "fifo"), **data}) == FAILED
    assert await code(wire, "fs/append", {"path": uri(tmp_path), **data}) == FAILED
    link = {"path": uri(tmp_path / "link"), **data}
    assert await code(wire, "fs/append", {**link, "followSymlinks": False}) == FAILED
    assert await code(wire, "fs/append", {**link, "dataBase64": "?"}) == INVALID
    assert await wire.call("fs/append", link) == {"size": 1}
    assert (tmp_path / "target").read_bytes() == b"x"
