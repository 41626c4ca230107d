"""Files in blocks: fs/open, fs/readBlock, fs/writeBlock, fs/close."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exec_server.files import handles
from exec_server.limits import Limits
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
    until,
    uri,
)
from tests.support.wire import PATIENCE, Wire, decoded

MIB = 1 << 20


async def open_file(wire: Wire, path: Path, handle_id: str = "h", **params: Any) -> None:
    params = {"handleId": handle_id, "path": uri(path), **params}
    assert await wire.call("fs/open", params) == {"handleId": handle_id}


async def block(wire: Wire, offset: int, size: int, handle_id: str = "h") -> tuple[bytes, bool]:
    params = {"handleId": handle_id, "offset": offset, "len": size}
    result = await wire.call("fs/readBlock", params)
    assert result.keys() == {"chunk", "eof"}
    return decoded(result), result["eof"]


def reading(handle_id: str = "h", offset: int = 0, size: int = 1) -> dict[str, Any]:
    return {"handleId": handle_id, "offset": offset, "len": size}


def writing(handle_id: str = "h", offset: int = 0, data: bytes = b"x") -> dict[str, Any]:
    return {"handleId": handle_id, "offset": offset, "chunk": encoded(data)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


@requirement("fs/readBlock:block", "fs/readBlock:eof", "fs/open:read")
async def test_eof_is_a_block_that_is_not_full(wire, file):
    await open_file(wire, file)
    assert await block(wire, 0, 4) == (b"0123", False)
    assert await block(wire, 2, 3) == (b"234", False)
    assert await block(wire, 0, 10) == (b"0123456789", False)
    assert await block(wire, 0, 11) == (b"0123456789", True)
    assert await block(wire, 8, 5) == (b"89", True)
    assert await block(wire, 10, 1) == (b"", True)
    assert await block(wire, 1 << 62, MIB) == (b"", True)


OFFSETS = st.integers(0, 300_000)
# Some blocks are longer than those that are written without a thread.
PIECES = st.builds(
    lambda piece, times: piece * times,
    st.binary(min_size=1, max_size=200),
    st.sampled_from([1, 1000]),
)


@given(
    writes=st.lists(st.tuples(OFFSETS, PIECES), max_size=5),
    reads=st.lists(st.tuples(OFFSETS, st.integers(1, MIB)), min_size=1, max_size=5),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@requirement("fs/readBlock:block", "fs/writeBlock:block")
async def test_blocks_are_what_a_file_would_hold(wire, tmp_path, writes, reads):
    """Any writes in any order, and then any reads, behave like those of a bytearray."""
    content = bytearray()
    await open_file(wire, tmp_path / "model", "w", mode="replace")
    for offset, piece in writes:
        await wire.call("fs/writeBlock", writing("w", offset, piece))
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(piece)] = piece
    await open_file(wire, tmp_path / "model", "r")
    for offset, size in reads:
        expected = bytes(content[offset : offset + size])
        assert await block(wire, offset, size, "r") == (expected, len(expected) < size)
    for handle_id in ("r", "w"):
        await wire.call("fs/close", {"handleId": handle_id})
    assert (tmp_path / "model").read_bytes() == content


@requirement("fs/open:update")
async def test_a_file_is_changed_in_part(wire, file, tmp_path):
    await open_file(wire, file, mode="update")
    assert await block(wire, 2, 3) == (b"234", False)
    await wire.call("fs/writeBlock", writing("h", 4, b"XY"))
    await wire.call("fs/writeBlock", writing("h", 10, b"!"))
    assert await block(wire, 0, 20) == (b"0123XY6789!", True)
    assert file.read_bytes() == b"0123XY6789!"
    await open_file(wire, tmp_path / "new", "n", mode="update")
    assert (tmp_path / "new").read_bytes() == b""
    error = await wire.error("fs/open", {"handleId": "d", "path": uri(tmp_path), "mode": "update"})
    assert error["code"] in (REFUSED, FAILED)


@requirement("fs/readBlock:block", "fs/writeBlock:block")
async def test_the_largest_blocks_travel(wire, tmp_path):
    data = os.urandom(MIB)
    await open_file(wire, tmp_path / "new", "w", mode="replace")
    await wire.call("fs/writeBlock", writing("w", MIB, data))
    await open_file(wire, tmp_path / "new", "r")
    assert await block(wire, 0, MIB, "r") == (bytes(MIB), False)
    assert await block(wire, MIB, MIB, "r") == (data, False)


@requirement("fs/readBlock:errors", "fs:numbers")
async def test_bad_arguments_leave_a_handle_alone(wire, file):
    await open_file(wire, file)
    for size in (0, MIB + 1, 1 << 63, (1 << 64) - 1):
        error = await wire.error("fs/readBlock", reading(size=size))
        assert error == {
            "code": REFUSED,
            "message": "file read block length must be between 1 and 1048576",
        }
    for params in ({"len": -1}, {"len": 1.0}, {"len": "1"}, {"offset": 1 << 64}, {"offset": None}):
        assert await code(wire, "fs/readBlock", {**reading(), **params}) == INVALID
    assert await block(wire, 0, 1) == (b"0", False)


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@requirement("fs/readBlock:errors")
async def test_an_offset_beyond_all_files_costs_the_handle(wire, file, offset):
    await open_file(wire, file)
    error = await wire.error("fs/readBlock", reading(offset=offset))
    assert error == {"code": REFUSED, "message": "Invalid argument (os error 22)"}
    error = await wire.error("fs/readBlock", reading())
    assert error == {"code": NOT_FOUND, "message": "unknown file handle `h`"}


@requirement("fs/readBlock:errors", "fs/writeBlock:errors")
async def test_the_wrong_direction_costs_the_handle_of_a_writer_only(wire, file):
    await open_file(wire, file)
    for size in (1, 100_000):
        error = await wire.error("fs/writeBlock", writing(data=bytes(size)))
        assert error == {"code": FAILED, "message": "Bad file descriptor (os error 9)"}
    assert await block(wire, 0, 1) == (b"0", False)
    await open_file(wire, file, "w", mode="replace")
    assert await code(wire, "fs/readBlock", reading("w")) == FAILED
    assert await code(wire, "fs/readBlock", reading("w")) == NOT_FOUND


@requirement("fs/writeBlock:errors")
async def test_bad_chunks_leave_a_handle_alone(wire, file):
    await open_file(wire, file, mode="replace")
    for data in (b"", bytes(MIB + 1)):
        error = await wire.error("fs/writeBlock", writing(data=data))
        assert error == {
            "code": REFUSED,
            "message": "file write block length must be between 1 and 1048576",
        }
    for offset in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        assert await code(wire, "fs/writeBlock", writing(offset=offset)) == REFUSED
    for chunk in ("?", "QQ", "QR==", None, 1, "A" * 40_000 + "?"):
        assert await code(wire, "fs/writeBlock", {**writing(), "chunk": chunk}) == INVALID
    assert await wire.call("fs/writeBlock", writing()) == {}
    # The content is visible at once, before the file is closed.
    assert file.read_bytes() == b"x"


@requirement("fs/open:replace")
async def test_replacing_empties_at_once_and_keeps_the_file(wire, tmp_path, file):
    file.chmod(0o640)
    inode = file.stat().st_ino
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "to nothing").symlink_to("made")
    await open_file(wire, tmp_path / "link", mode="replace")
    assert file.read_bytes() == b""
    assert (file.stat().st_ino, file.stat().st_mode & 0o777) == (inode, 0o640)
    await open_file(wire, tmp_path / "to nothing", "made", mode="replace")
    assert (tmp_path / "made").read_bytes() == b""


@requirement("fs/open:mode")
async def test_there_are_two_modes(wire, file):
    for mode in (None, "", "write", "READ", 1):
        params = {"handleId": "h", "path": uri(file), "mode": mode}
        assert await code(wire, "fs/open", params) == INVALID
    await open_file(wire, file, mode="read")
    assert file.read_bytes() == b"0123456789"


@requirement("fs/handle:id")
async def test_an_id_has_at_most_32_bytes(wire, file):
    for handle_id in ("", "x" * 32, "é" * 16, "\0", "a/b"):
        await open_file(wire, file, handle_id)
        assert await block(wire, 0, 1, handle_id) == (b"0", False)
        assert await wire.call("fs/close", {"handleId": handle_id}) == {}
    expected = {"code": REFUSED, "message": "file handle ID must not exceed 32 bytes"}
    for handle_id in ("x" * 33, "é" * 17):
        assert await wire.error("fs/open", {"handleId": handle_id, "path": uri(file)}) == expected
        assert await wire.error("fs/readBlock", reading(handle_id, size=0)) == expected
        assert await wire.error("fs/writeBlock", writing(handle_id, data=b"")) == expected
        assert await wire.error("fs/close", {"handleId": handle_id}) == expected


@requirement("fs/handle:duplicate")
async def test_an_id_in_use_is_refused_first(wire, file, tmp_path):
    await open_file(wire, file)
    for path in (file, tmp_path / "gone", tmp_path):
        error = await wire.error("fs/open", {"handleId": "h", "path": uri(path)})
        assert error == {"code": REFUSED, "message": "file handle `h` already exists"}
    foreign = {"handleId": "h", "path": "file://host/x", "mode": "replace"}
    assert "already exists" in (await wire.error("fs/open", foreign))["message"]
    # A failed open keeps no handle.
    for path, expected in ((tmp_path / "gone", NOT_FOUND), (tmp_path, REFUSED)):
        assert await code(wire, "fs/open", {"handleId": "i", "path": uri(path)}) == expected
    assert await code(wire, "fs/open", {**foreign, "handleId": "i"}) == REFUSED
    await open_file(wire, file, "i")


@requirement("fs/handle:count")
async def test_a_connection_has_128_handles(server, wire, file, tmp_path):
    for number in range(128):
        mode = "read" if number % 2 else "replace"
        await open_file(
            wire, tmp_path / f"{number}" if mode == "replace" else file, f"{number}", mode=mode
        )
    error = await wire.error("fs/open", {"handleId": "more", "path": uri(tmp_path / "gone")})
    assert error == {
        "code": REFUSED,
        "message": "at most 128 file handles may be open per connection",
    }
    async with Wire(server.url) as other:
        await other.initialize()
        await open_file(other, file, "more")
    await wire.call("fs/close", {"handleId": "7"})
    await open_file(wire, file, "more")


@requirement("fs/close:always")
async def test_closing_never_fails(wire, file):
    await open_file(wire, file)
    for _ in range(2):
        assert await wire.call("fs/close", {"handleId": "h"}) == {}
    assert await wire.call("fs/close", {"handleId": "never was"}) == {}
    assert await code(wire, "fs/readBlock", reading()) == NOT_FOUND


@requirement("fs/handle:binding")
async def test_a_handle_stays_with_its_file(wire, file, tmp_path):
    await open_file(wire, file)
    await open_file(wire, tmp_path / "written", "w", mode="replace")
    os.rename(file, tmp_path / "elsewhere")
    os.rename(tmp_path / "written", tmp_path / "moved")
    file.write_bytes(b"another")
    with (tmp_path / "elsewhere").open("ab") as more:
        more.write(b"more")
    assert await block(wire, 8, 100) == (b"89more", True)
    os.unlink(tmp_path / "elsewhere")
    assert await block(wire, 0, 4) == (b"0123", False)
    await wire.call("fs/writeBlock", writing("w", data=b"there"))
    assert (tmp_path / "moved").read_bytes() == b"there"


@requirement("fs/handle:connection")
async def test_handles_belong_to_their_connection(server, file):
    before = open_descriptors()
    async with Wire(server.url) as first, Wire(server.url) as second:
        session = (await first.initialize())["sessionId"]
        await second.initialize()
        await open_file(first, file)
        assert await code(second, "fs/readBlock", reading()) == NOT_FOUND
        await open_file(second, file)
        first.cut()
        await until(lambda: len(open_descriptors() - before) == 1)
        async with Wire(server.url) as resumed:
            await resumed.initialize(resumeSessionId=session)
            assert await code(resumed, "fs/readBlock", reading()) == NOT_FOUND
        assert await block(second, 0, 1) == (b"0", False)
    await until(lambda: not open_descriptors() - before)


class Barrier:
    """Holds a function in its thread until it is released."""

    def __init__(self, function) -> None:
        self._function = function
        self.entered = threading.Event()
        self.released = threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.entered.set()
        assert self.released.wait(PATIENCE)
        return self._function(*args)


@requirement("fs/handle:in-use")
async def test_a_handle_is_closed_after_its_last_user(server, file, monkeypatch):
    slow = Barrier(handles.write_block)
    monkeypatch.setattr(handles, "write_block", slow)
    before = open_descriptors()
    async with Wire(server.url) as wire:
        await wire.initialize(concurrentRequests=4)
        await open_file(wire, file, mode="replace")
        data = os.urandom(100_000)
        request = await wire.request("fs/writeBlock", writing(data=data))
        await asyncio.to_thread(slow.entered.wait, PATIENCE)
        assert await wire.call("fs/close", {"handleId": "h"}) == {}
        # The name is free, but the descriptor is not: this file gets another number.
        await open_file(wire, file)
        assert len(open_descriptors() - before) == 2
        slow.released.set()
        assert (await wire.answer(request))["result"] == {}
        assert file.read_bytes() == data
        await until(lambda: len(open_descriptors() - before) == 1)


@requirement("fs/handle:in-use", "fs/handle:connection")
async def test_a_connection_that_is_lost_leaves_no_descriptor(server, file, monkeypatch):
    slow = Barrier(handles.write_block)
    monkeypatch.setattr(handles, "write_block", slow)
    before = open_descriptors()
    async with Wire(server.url) as wire:
        await wire.initialize()
        await open_file(wire, file, mode="replace")
        await wire.request("fs/writeBlock", writing(data=bytes(100_000)))
        await asyncio.to_thread(slow.entered.wait, PATIENCE)
        wire.cut()
    await server.core.wait_idle()
    slow.released.set()
    await until(lambda: not open_descriptors() - before)
    assert file.read_bytes() == bytes(100_000)


@requirement("fs/handle:connection", "fs/handle:duplicate")
async def test_a_file_that_opens_too_late_is_closed_again(server, file, monkeypatch):
    slow = Barrier(os.fstat)
    monkeypatch.setattr("exec_server.files.operations.local.os.fstat", slow)
    before = open_descriptors()
    async with Wire(server.url) as wire:
        await wire.initialize(concurrentRequests=4)
        params = {"handleId": "h", "path": uri(file), "mode": "replace"}
        request = await wire.request("fs/open", params)
        await asyncio.to_thread(slow.entered.wait, PATIENCE)
        # The file is not open yet, but the name is taken.
        assert await code(wire, "fs/readBlock", reading()) == NOT_FOUND
        assert await code(wire, "fs/open", params) == REFUSED
        assert await wire.call("fs/close", {"handleId": "h"}) == {}
        monkeypatch.undo()
        slow.released.set()
        assert (await wire.answer(request))["result"] == {"handleId": "h"}
        assert await code(wire, "fs/readBlock", reading()) == NOT_FOUND
    await until(lambda: not open_descriptors() - before)


@requirement("fs:backpressure")
async def test_blocks_wait_for_a_client_that_does_not_read(tmp_path):
    (tmp_path / "file").write_bytes(bytes(MIB))
    async with serve(limits=Limits()) as server, Wire(server.url) as wire:
        await wire.initialize()
        await open_file(wire, tmp_path / "file")
        transport = wire.socket.transport
        transport.pause_reading()
        asked = [await wire.request("fs/readBlock", reading(size=MIB)) for _ in range(200)]
        async with Wire(server.url) as other:
            # Requests of other clients are answered, so those of the first could have been.
            await other.initialize()
            for _ in range(50):
                await other.call("environment/status")
        with_files = [c for c in server.core._contexts if "files" in vars(c)]
        (behind,) = [c for c in with_files if c.files._runner.is_behind]
        queued: int = behind.connection._stream.get_write_buffer_size()  # type: ignore[attr-defined]
        assert queued < 8 * MIB
        transport.resume_reading()
        for request in asked:
            assert len((await wire.answer(request))["result"]["chunk"]) == 1_398_104
