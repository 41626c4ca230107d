"""Packed messages between a server and raw connections."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64decode
from itertools import pairwise
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.wire import PATIENCE, Wire, start_params

CONTENT = os.urandom(50_000)


def packed(message: dict[str, Any], content: bytes, member: str = "chunk") -> bytes:
    """*message*, whose *member* is empty, with its content behind it."""
    text = json.dumps(message, separators=(",", ":")).encode()
    marker = f'"{member}":"'.encode()
    place = text.index(marker) + len(marker)
    head = b"\x01" + place.to_bytes(2, "big") + len(text).to_bytes(2, "big")
    return head + text + content


class PackedWire(Wire):
    """A connection that understands packed messages, and counts them."""

    packed = 0

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            data = await self.socket.recv()
        if isinstance(data, str):
            message: dict[str, Any] = json.loads(data)
            return message
        self.packed += 1
        assert data[:1] == b"\x01"
        place, end = int.from_bytes(data[1:3], "big"), 5 + int.from_bytes(data[3:5], "big")
        text, content = data[5:end], data[end:]
        assert text[place - 1 : place + 1] == b'""'
        message = json.loads(text)
        inner = message["params"] if "params" in message else message["result"]
        assert inner["chunk"] == ""
        inner["chunk"] = content
        return message


async def test_every_message_is_text_for_a_client_that_has_not_asked(wire, tmp_path):
    """`Wire` reads only JSON."""
    (tmp_path / "f").write_bytes(CONTENT)
    done = await wire.run("p", ["cat", str(tmp_path / "f")])
    assert done.stdout == CONTENT
    await wire.call("fs/open", {"handleId": "h", "path": (tmp_path / "f").as_uri()})
    block = await wire.call("fs/readBlock", {"handleId": "h", "offset": 0, "len": 60_000})
    assert b64decode(block["chunk"]) == CONTENT


@requirement("packed/not-agreed")
@pytest.mark.parametrize("content", [b"x", CONTENT, bytes(200_000)])
async def test_a_packed_request_is_malformed_for_a_client_that_has_not_asked(wire, content):
    params = {"processId": "p", "chunk": ""}
    await wire.socket.send(packed({"id": 5, "method": "process/write", "params": params}, content))
    answer = await wire.receive()
    assert answer["id"] == -1, answer
    assert await wire.call("environment/status") == {"status": "ready"}


@requirement("packed/both-ways")
async def test_output_and_input_are_packed(server):
    async with PackedWire(server.url) as wire:
        info = await wire.initialize(packed=True)
        assert info["environmentInfo"]["capabilities"]["packedMessages"] is True
        # Without the terminal's own limits, and with an end that the program itself decides.
        argv = ["head", "-c", str(len(CONTENT))]
        await wire.call("process/start", start_params("p", argv, pipeStdin=True))
        params = {"processId": "p", "chunk": "", "writeId": "w"}
        request = {"id": 77, "method": "process/write", "params": params}
        await wire.socket.send(packed(request, CONTENT))
        assert (await wire.answer(77))["result"] == {"status": "accepted"}
        output = b""
        while len(output) < len(CONTENT):
            event = await wire.find(lambda m: m.get("method") == "process/output")
            chunk = event["params"]["chunk"]
            output += chunk if isinstance(chunk, bytes) else b64decode(chunk)
        assert output == CONTENT
        assert wire.packed


@requirement("packed/both-ways")
@pytest.mark.parametrize("size", [1000, 50_000, 1_000_000, 1_048_576])
async def test_blocks_of_files_are_packed(server, tmp_path, size):
    content = os.urandom(size)
    async with PackedWire(server.url) as wire:
        await wire.initialize(packed=True)
        path = (tmp_path / "f").as_uri()
        await wire.call("fs/open", {"handleId": "w", "path": path, "mode": "replace"})
        params = {"handleId": "w", "offset": 0, "chunk": ""}
        request = {"id": 77, "method": "fs/writeBlock", "params": params}
        await wire.socket.send(packed(request, content))
        assert "result" in await wire.answer(77)
        await wire.call("fs/close", {"handleId": "w"})
        await wire.call("fs/open", {"handleId": "r", "path": path})
        block = await wire.call("fs/readBlock", {"handleId": "r", "offset": 0, "len": 1 << 20})
        chunk = block["chunk"]
        assert (chunk if isinstance(chunk, bytes) else b64decode(chunk)) == content
        assert block["eof"] is (size < 1 << 20)
        assert wire.packed == (size > 1024)


@requirement("packed/same-meaning")
@pytest.mark.parametrize("pieces", [[1], [5], [100, 16_384, 20_000], []])
@pytest.mark.parametrize(
    "content", [CONTENT, b'"chunk":"' + b"A" * 100_000, b'"chunk":"' + b"A" * 100_000 + b'"']
)
async def test_a_packed_message_may_come_in_fragments(server, tmp_path, pieces, content):
    async with PackedWire(server.url) as wire:
        await wire.initialize(packed=True)
        params = {"path": (tmp_path / "f").as_uri(), "dataBase64": ""}
        request = {"id": 77, "method": "fs/writeFile", "params": params}
        data = packed(request, content, "dataBase64")
        cuts = [0, *pieces, len(data)]
        await wire.socket.send([data[a:b] for a, b in pairwise(cuts)])
        answer = await wire.answer(77)
        assert "result" in answer, answer
        assert (tmp_path / "f").read_bytes() == content


@requirement("packed/long-text")
@pytest.mark.parametrize("length", [16_000, 16_384, 70_000])
async def test_output_with_a_long_id_is_packed_only_if_its_text_is_short_enough(server, length):
    async with PackedWire(server.url) as wire:
        await wire.initialize(packed=True)
        argv = ["head", "-c", "50000", "/dev/zero"]
        await wire.call("process/start", start_params("p" * length, argv))
        output = b""
        while len(output) < 50_000:
            event = await wire.find(lambda m: m.get("method") == "process/output")
            chunk = event["params"]["chunk"]
            output += chunk if isinstance(chunk, bytes) else b64decode(chunk)
        assert output == bytes(50_000)
        assert bool(wire.packed) is (length < 16_384)


@requirement("packed/malformed")
@pytest.mark.parametrize("size", [0, 70_000])
@pytest.mark.parametrize(
    "message",
    [
        b"\x01",
        b"\x01\x00\x05\x00\x02{}",
        b"\x01\x00\x00\xff\xff",
        packed({"id": 1, "method": "x", "params": {"chunk": "x"}}, b""),
    ],
)
async def test_a_spoiled_packed_message_is_answered_as_malformed(server, message, size):
    async with PackedWire(server.url) as wire:
        await wire.initialize(packed=True)
        await wire.socket.send(message + bytes(size))
        answer = await wire.receive()
        assert answer["id"] == -1, answer
        assert await wire.call("environment/status") == {"status": "ready"}
