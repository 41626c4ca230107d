"""The retention of processes and of their output."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.local import connected, resumed, server_with, wire_with
from tests.support.wire import Wire, decoded

MIB = 1 << 20


async def read(wire: Wire, process_id: str = "p", **params):
    return await wire.call("process/read", {"processId": process_id, **params})


def size_of(page) -> int:
    return sum(len(decoded(chunk)) for chunk in page["chunks"])


async def until_forgotten(wire: Wire, process_id: str) -> None:
    """Ask until the id is unknown."""
    answer: dict[str, Any] = {"result": {}}
    while "result" in answer:
        answer = await wire.answer(await wire.request("process/read", {"processId": process_id}))
    assert answer["error"] == {"code": -32600, "message": f"unknown process id {process_id}"}


@requirement("retention:one-mebibyte")
async def test_exactly_a_mebibyte_is_kept_whole(wire):
    await wire.run("p", ["head", "-c", str(MIB), "/dev/zero"])
    page = await read(wire)
    assert size_of(page) == MIB
    assert page["chunks"][0]["seq"] == 1
    assert "droppedBytes" not in page


@requirement("retention:one-mebibyte", "retention:newest-whole-chunks", "extension/dropped-bytes")
async def test_one_byte_more_drops_the_first_chunk(wire):
    await wire.start(
        "p", ["sh", "-c", f"head -c {MIB} /dev/zero; read x; printf y"], pipeStdin=True
    )
    received = 0
    while received < MIB:
        received += len(decoded(await wire.event("p", "process/output")))
    first = (await read(wire, maxBytes=0))["chunks"][0]
    await wire.write("p", b"\n", "1")
    await wire.event("p", "process/closed")
    page = await read(wire)
    dropped = len(decoded(first))
    assert page["chunks"][0]["seq"] == 2
    assert size_of(page) == MIB + 1 - dropped
    assert decoded(page["chunks"][-1]) == b"y"
    assert page["droppedBytes"] == dropped


@requirement("retention:newest-whole-chunks", "process/read:evicted-is-skipped")
async def test_evicted_output_is_skipped(wire):
    finished = await wire.run("p", ["seq", "1", "500000"])
    assert len(finished.stdout) > 3 * MIB
    page = await read(wire)
    kept = b"".join(decoded(chunk) for chunk in page["chunks"])
    assert 0 < len(kept) <= MIB
    assert finished.stdout.endswith(kept)
    assert page["chunks"][0]["seq"] > 1
    numbers = [chunk["seq"] for chunk in page["chunks"]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert page["droppedBytes"] == len(finished.stdout) - len(kept)
    # Nothing is missing for a client that has read it.
    assert "droppedBytes" not in await read(wire, afterSeq=numbers[0] - 1)


@requirement("retention:per-process")
async def test_each_process_has_a_window_of_its_own(wire):
    await wire.run("p", ["echo", "small"])
    await wire.run("q", ["head", "-c", str(4 * MIB), "/dev/zero"])
    assert size_of(await read(wire)) == 6


@requirement("retention:options")
async def test_the_window_is_an_option():
    async with wire_with(retained_bytes=100, retained_chunks=2) as wire:
        await wire.start("p", ["cat"], pipeStdin=True)
        for number in range(5):
            await wire.write("p", b"%d" % number, str(number))
            await wire.event("p", "process/output")
        page = await read(wire)
        assert [decoded(chunk) for chunk in page["chunks"]] == [b"3", b"4"]
        assert page["droppedBytes"] == 3


@requirement("retention:fifty-thousand-chunks")
async def test_an_answer_with_every_retained_chunk_is_readable(wire):
    # A chunk has four JSON values, and many one-byte chunks must not be too many for a decoder.
    script = "i=0; while [ $i -lt 3000 ]; do read -r x; printf x; i=$((i+1)); done"
    await wire.start("p", ["sh", "-c", script], pipeStdin=True)
    chunk = base64.b64encode(b"\n").decode()
    for number in range(3000):
        await wire.request(
            "process/write", {"processId": "p", "chunk": chunk, "writeId": str(number)}
        )
    await wire.event("p", "process/closed")
    page = await read(wire)
    assert b"".join(decoded(c) for c in page["chunks"]) == b"x" * 3000
    assert len(page["chunks"]) <= 50_000


@pytest.mark.parametrize("is_attached", [True, False])
@requirement("retention:closed-processes")
async def test_a_closed_process_is_forgotten_after_its_time(is_attached):
    async with server_with(closed_process_seconds=0.2, detached_session_seconds=30) as server:
        wire = await Wire(server.url).__aenter__()
        session_id = (await wire.initialize())["sessionId"]
        await wire.run("p", ["echo", "kept"])
        assert size_of(await read(wire)) == 5
        if not is_attached:
            wire.cut()
            wire = await resumed(server.url, session_id)
        await until_forgotten(wire, "p")
        assert await wire.write("p", b"", "1") == "unknownProcess"
        assert await wire.call("process/terminate", {"processId": "p"}) == {"running": False}
        assert await wire.call("process/list") == {"processes": []}
        # The id can be used again, and its numbers start at one.
        assert (await wire.run("p", ["echo", "new"])).seqs == [1, 2, 3]
        wire.cut()


@requirement("retention:exited-but-open")
async def test_an_exited_but_open_process_is_never_forgotten():
    async with wire_with(closed_process_seconds=0.05) as wire:
        await wire.start("open", ["sh", "-c", "sleep 60 & echo $!; exit 3"])
        background = Watched(int(decoded(await wire.event("open", "process/output"))))
        await wire.event("open", "process/exited")
        # A process that closed later is gone, and this one is not.
        await wire.run("closed", ["true"])
        await until_forgotten(wire, "closed")
        page = await read(wire, "open", afterSeq=2)
        assert (page["exited"], page["closed"]) == (True, False)
        os.kill(background.pid, 9)
        await background.ended()
        await wire.event("open", "process/closed")
        await until_forgotten(wire, "open")


@requirement("retention:closed-processes")
async def test_the_time_counts_from_the_close():
    async with server_with(closed_process_seconds=0.3) as server, connected(server.url) as wire:
        await wire.run("p", ["true"])
        await wire.run("q", ["true"])
        # Both are known, and then neither: the first expires no later than the second.
        await until_forgotten(wire, "q")
        error = await wire.error("process/read", {"processId": "p"})
        assert error["message"] == "unknown process id p"
