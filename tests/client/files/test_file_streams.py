"""Files in blocks."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.files import file_streams
from exec_server.client_urls import connect
from exec_server.errors import (
    ConnectionClosed,
    InternalError,
    InvalidRequest,
    NotFound,
    ProtocolError,
)
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import fault_proxy
from tests.support.leaks import eventually, open_descriptors
from tests.support.wire import PATIENCE

MIB = 1024 * 1024
INFO = {"shell": {"name": "sh", "path": "/bin/sh"}}
WRITING = {
    "sessionId": "s",
    "environmentInfo": INFO | {"capabilities": {"fileWriteStreaming": True}},
}


def block(data: bytes, *, eof: bool = False) -> dict[str, Any]:
    return {"chunk": base64.b64encode(data).decode(), "eof": eof}


@asynccontextmanager
async def serving(
    script: Callable[[Talk], Awaitable[None]], result: Any = None
) -> AsyncIterator[ExecServerClient]:
    async def play(talk: Talk) -> None:
        await talk.shake_hands(WRITING if result is None else result)
        await script(talk)
        await talk.gone()

    async with fake_server(play) as url, connect(url, reconnect=False) as client:
        yield client


async def opened(talk: Talk) -> str:
    request = await talk.expect("fs/open")
    handle: str = request["params"]["handleId"]
    await talk.answer(request, {"handleId": handle})
    return handle


async def closed(talk: Talk, handle: str) -> None:
    """The next message except requests whose answer is not awaited any more."""
    while (request := await talk.receive())["method"] != "fs/close":
        assert request["method"] in ("fs/readBlock", "fs/writeBlock"), request
    assert request["params"] == {"handleId": handle}
    await talk.answer(request, {})


def open_handles(folder: Path) -> int:
    """How many files in *folder* the server, which is in this process, has open."""
    return sum(target.startswith(f"{folder}/") for target in open_descriptors().values())


# Reading.


@requirement("client/stream:read")
@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 7 * MIB, 7 * MIB + 5])
async def test_a_file_is_read_in_order(client, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    blocks = [block async for block in client.fs.read_stream(tmp_path / "file")]
    assert b"".join(blocks) == data
    assert all(len(block) == MIB for block in blocks[:-1])


@requirement("client/stream:range")
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (3, 5), (MIB - 1, 2), (2 * MIB, None), (0, 9 * MIB), (9, 0)]
)
async def test_a_part_of_a_file_is_read(client, tmp_path, offset, length):
    data = os.urandom(3 * MIB + 7)
    (tmp_path / "file").write_bytes(data)
    stream = client.fs.read_stream(tmp_path / "file", offset=offset, length=length)
    end = None if length is None else offset + length
    assert await stream.read() == data[offset:end]


@requirement("client/stream:read")
async def test_several_blocks_are_under_way_and_answers_may_come_in_any_order():
    async def script(talk: Talk) -> None:
        await opened(talk)
        requests = [await talk.expect("fs/readBlock") for _ in range(4)]
        assert [request["params"]["offset"] for request in requests] == [0, MIB, 2 * MIB, 3 * MIB]
        assert [request["params"]["len"] for request in requests] == [MIB, MIB, MIB, 5]
        for index, request in reversed(list(enumerate(requests))):
            await talk.answer(request, block(bytes([index]) * request["params"]["len"]))

    async with serving(script) as client:
        data = await client.fs.read_stream("/f", length=3 * MIB + 5).read()
    assert data == b"\0" * MIB + b"\1" * MIB + b"\2" * MIB + b"\3" * 5


@requirement("client/stream:block-rules", "client/stream:closed")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (block(b"x" * (MIB + 1), eof=True), "1048577 bytes where 1048576 were asked for"),
        (block(b""), "an empty block that is not the last one"),
        ({"chunk": "not base64", "eof": True}, "wrong shape"),
        ({"chunk": ""}, "wrong shape"),
    ],
)
async def test_blocks_that_break_the_rules_end_the_stream(answer, text):
    is_closed = asyncio.Event()

    async def script(talk: Talk) -> None:
        handle = await opened(talk)
        await talk.answer(await talk.expect("fs/readBlock"), answer)
        await closed(talk, handle)
        is_closed.set()

    async with serving(script) as client:
        stream = client.fs.read_stream("/f")
        with pytest.raises(ProtocolError, match=text):
            await anext(stream)
        async with asyncio.timeout(PATIENCE):
            await is_closed.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@requirement("client/stream:short-block")
async def test_a_short_block_is_followed_by_what_comes_after_it():
    async def script(talk: Talk) -> None:
        handle = await opened(talk)
        first = [await talk.expect("fs/readBlock") for _ in range(2)]
        await talk.answer(first[0], block(b"abc"))
        await talk.answer(first[1], block(b"never wanted", eof=True))
        request = await talk.expect("fs/readBlock")
        assert request["params"]["offset"] == 3
        await talk.answer(request, block(b"def", eof=True))
        await closed(talk, handle)

    async with serving(script) as client:
        assert await client.fs.read_stream("/f", length=2 * MIB).read() == b"abcdef"


@requirement("client/stream:closed")
async def test_a_file_is_closed_however_a_stream_ends(client, tmp_path):
    (tmp_path / "file").write_bytes(bytes(9 * MIB))
    await client.fs.read_stream(tmp_path / "file").read()
    async with client.fs.read_stream(tmp_path / "file") as stream:
        assert len(await anext(stream)) == MIB
        assert open_handles(tmp_path) == 1
    dropped = client.fs.read_stream(tmp_path / "file")
    await anext(dropped)
    del dropped
    gc.collect()
    with pytest.raises(RuntimeError, match="mine"):
        async with client.fs.read_stream(tmp_path / "file"):
            raise RuntimeError("mine")
    await eventually(lambda: open_handles(tmp_path) == 0)


@requirement("client/stream:closed")
async def test_a_reader_that_is_cancelled_closes_the_file():
    asked = asyncio.Event()
    is_closed = asyncio.Event()

    async def script(talk: Talk) -> None:
        handle = await opened(talk)
        await talk.expect("fs/readBlock")
        asked.set()
        await closed(talk, handle)
        is_closed.set()

    async with serving(script) as client:
        reading = asyncio.create_task(client.fs.read_stream("/f").read())
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await is_closed.wait()


@requirement("client/stream:closed")
async def test_a_file_that_cannot_be_opened_is_told(client, tmp_path):
    with pytest.raises(NotFound):
        await client.fs.read_stream(tmp_path / "missing").read()
    with pytest.raises(InternalError):
        async with client.fs.write_stream(tmp_path):
            pass


@requirement("client/stream:lost")
async def test_a_stream_fails_with_its_connection(server, tmp_path):
    (tmp_path / "file").write_bytes(bytes(32 * MIB))
    async with fault_proxy(server.url) as proxy, connect(proxy.url) as client:
        stream = client.fs.read_stream(tmp_path / "file")
        await anext(stream)
        proxy.cut()
        with pytest.raises((ConnectionClosed, NotFound)):
            async for _ in stream:
                pass
        assert await client.fs.read_stream(tmp_path / "file", length=3).read() == bytes(3)


# Writing.


@requirement("client/stream:write")
@pytest.mark.parametrize("sizes", [[], [5], [MIB], [MIB, MIB, 1], [3 * MIB + 1, 7, MIB], [9] * 50])
async def test_a_file_is_written_whole(client, tmp_path, sizes):
    pieces = [os.urandom(size) for size in sizes]
    (tmp_path / "file").write_bytes(b"what was there before" * 10)
    async with client.fs.write_stream(tmp_path / "file") as stream:
        for piece in pieces:
            await stream.write(piece)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


@requirement("client/stream:write")
async def test_several_writes_are_under_way():
    async def script(talk: Talk) -> None:
        request = await talk.expect("fs/open")
        assert request["params"]["mode"] == "replace"
        handle = request["params"]["handleId"]
        assert len(handle) == 32
        await talk.answer(request, {"handleId": handle})
        requests = [await talk.expect("fs/writeBlock") for _ in range(file_streams.WINDOW)]
        offsets = [request["params"]["offset"] for request in requests]
        assert offsets == [index * MIB for index in range(file_streams.WINDOW)]
        for request in reversed(requests):
            await talk.answer(request, {})
        last = await talk.expect("fs/writeBlock")
        assert base64.b64decode(last["params"]["chunk"]) == b"end"
        await talk.answer(last, {})
        await closed(talk, handle)

    async with serving(script) as client, client.fs.write_stream("/f") as stream:
        await stream.write(bytes(file_streams.WINDOW * MIB) + b"end")


@requirement("client/stream:write-error", "client/stream:closed")
async def test_a_write_that_is_refused_fails_the_stream():
    is_closed = asyncio.Event()

    async def script(talk: Talk) -> None:
        handle = await opened(talk)
        await talk.refuse(
            await talk.expect("fs/writeBlock"), -32603, "No space left on device (os error 28)"
        )
        await closed(talk, handle)
        is_closed.set()

    async with serving(script) as client:
        with pytest.raises(InternalError, match="No space left"):
            async with client.fs.write_stream("/f") as stream:
                await stream.write(b"x")
        async with asyncio.timeout(PATIENCE):
            await is_closed.wait()


@requirement("client/stream:write-error")
async def test_a_stream_is_of_no_use_after_an_error(client, tmp_path):
    async with client.fs.write_stream(tmp_path / "file") as stream:
        await stream.write(b"x" * MIB)
        await eventually(lambda: (tmp_path / "file").stat().st_size == MIB)
        with pytest.raises(TypeError):
            await stream.write("text")
        with pytest.raises(ValueError, match="not open"):
            await stream.write(b"x")
    with pytest.raises(ValueError, match="not open"):
        await client.fs.write_stream(tmp_path / "file").write(b"x")
    await eventually(lambda: open_handles(tmp_path) == 0)


@requirement("client/stream:write-fallback")
async def test_a_server_without_blocks_gets_the_file_at_once(monkeypatch):
    monkeypatch.setattr(file_streams, "WHOLE_FILE_BYTES", 10)
    written = []

    async def script(talk: Talk) -> None:
        request = await talk.expect("fs/writeFile")
        written.append(base64.b64decode(request["params"]["dataBase64"]))
        await talk.answer(request, {})

    async with serving(script, {"sessionId": "s", "environmentInfo": INFO}) as client:
        async with client.fs.write_stream("/f") as stream:
            await stream.write(b"hello ")
            await stream.write(b"you")
        assert written == [b"hello you"]
        with pytest.raises(InvalidRequest, match="does not offer fileWriteStreaming"):
            async with client.fs.write_stream("/f") as stream:
                await stream.write(b"hello ")
                await stream.write(b"all of you")
