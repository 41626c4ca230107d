"""process/write: order, idempotency, and which processes take input."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.children import child
from tests.support.local import connected, resumed, server_with
from tests.support.wire import Finished, Wire, decoded


async def write(wire: Wire, **params):
    """The outcome of a write: a status, or the code of an error."""
    answer = await wire.answer(
        await wire.request("process/write", {"processId": "p", "chunk": "", **params})
    )
    return answer["error"]["code"] if "error" in answer else answer["result"]["status"]


@requirement("process/write:params")
async def test_members_are_required_and_typed(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    wrong: list[dict[str, Any]] = [
        {"processId": None},
        {"processId": 1},
        {"chunk": None},
        {"chunk": 5},
        {"chunk": []},
        {"writeId": None},
        {"writeId": 1},
        {"writeId": ""},
    ]
    for params in wrong:
        assert await write(wire, **params) == -32602, params
    incomplete: list[dict[str, Any]] = [{}, {"processId": "p"}, {"chunk": "", "writeId": "1"}]
    for params in incomplete:
        assert (await wire.error("process/write", params))["code"] == -32602


@pytest.mark.parametrize(
    "chunk",
    ["aGVsbG8", "aGVsbG8==", "_-8=", "YR==", "YWJ=", "aGVsbG8=\n", " aGVsbG8=", "a", "=", "====",
     "aGVs bG8=", "aGVsbG8=aGVsbG8=", "é", "YQ=", "Y===", "\0"],
)  # fmt: skip
@requirement("process/write:base64")
async def test_base64_is_strict(wire, chunk):
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await write(wire, chunk=chunk, writeId="1") == -32602
    # The id was not remembered either.
    assert await write(wire, chunk="b2sK", writeId="1") == "accepted"
    assert await wire.output_until("p", b"\n") == b"ok\n"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 12_288, 12_289, 16_384, 16_385, 1 << 20])
@requirement("process/write:any-bytes")
async def test_any_bytes_of_any_size_arrive(wire, size):
    data = os.urandom(size)
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await wire.write("p", data, "1") == "accepted"
    assert await wire.write("p", b"end", "2") == "accepted"
    seen = b""
    while len(seen) < size + 3:
        seen += decoded(await wire.event("p", "process/output"))
    assert seen == data + b"end"


@requirement("process/write:bulk-base64")
async def test_base64_is_strict_in_large_writes_too(wire):
    text = base64.b64encode(bytes(30_000)).decode()
    await wire.start("p", ["cat"], pipeStdin=True)
    for chunk in (text[:-1], text[:-1] + "!", text + "\n", text[:-4] + "YR==", text + "===="):
        assert await write(wire, chunk=chunk, writeId="1") == -32602
    assert await write(wire, chunk="b2sK", writeId="1") == "accepted"
    assert await wire.output_until("p", b"\n") == b"ok\n"


@requirement("process/write:order")
async def test_writes_reach_the_child_in_order(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    for number in range(500):
        params = {
            "processId": "p",
            "chunk": base64.b64encode(b"%d\n" % number).decode(),
            "writeId": str(number),
        }
        await wire.request("process/write", params)
    seen = await wire.output_until("p", b"\n499\n")
    assert seen == b"".join(b"%d\n" % number for number in range(500))


@requirement("process/write:idempotent")
async def test_a_repeated_id_is_accepted_and_not_written(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await wire.write("p", b"one\n", "id") == "accepted"
    assert await wire.write("p", b"one\n", "id") == "accepted"
    # This holds even if the bytes differ.
    assert await wire.write("p", b"other\n", "id") == "accepted"
    assert await wire.write("p", b"two\n", "other id") == "accepted"
    assert await wire.output_until("p", b"two\n") == b"one\ntwo\n"


@requirement("process/write:ids-are-per-process")
async def test_ids_are_remembered_per_process(wire):
    for name in ("p", "q"):
        await wire.start(name, ["cat"], pipeStdin=True)
        assert await wire.write(name, name.encode() + b"\n", "1") == "accepted"
        assert await wire.output_until(name, b"\n") == name.encode() + b"\n"


@requirement("process/write:remembered-ids")
async def test_the_oldest_ids_are_forgotten():
    async with (
        server_with(remembered_write_ids=3) as server,
        connected(server.url) as wire,
    ):
        await wire.start("p", ["cat"], pipeStdin=True)
        for write_id in ("1", "2", "3", "4"):
            assert await wire.write("p", write_id.encode(), write_id) == "accepted"
        assert await wire.write("p", b"no", "2") == "accepted"
        assert await wire.write("p", b"again", "1") == "accepted"
        assert await wire.output_until("p", b"again") == b"1234again"


@requirement("process/write:ids-outlive-the-process")
async def test_ids_are_remembered_after_the_end(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await wire.write("p", b"x", "1") == "accepted"
    await wire.call("process/terminate", {"processId": "p"})
    assert await wire.write("p", b"x", "1") == "accepted"
    await wire.event("p", "process/closed")
    assert await wire.write("p", b"x", "1") == "accepted"


@requirement("process/write:unknown-process", "process/write:check-order")
async def test_an_unknown_process_is_told(wire):
    assert await write(wire, writeId="1") == "unknownProcess"
    assert await write(wire, writeId="") == -32602


@requirement("process/write:stdin-closed")
async def test_a_process_without_input_is_told(wire):
    await wire.start("p", ["sh", "-c", "read x; exit 3"])
    assert await write(wire, writeId="1") == "stdinClosed"
    await wire.event("p", "process/closed")
    assert await write(wire, writeId="1") == "stdinClosed"


@requirement("process/write:after-exit")
async def test_a_write_after_the_exit_is_accepted_and_discarded(wire):
    for name, tty in (("p", False), ("q", True)):
        await wire.start(name, ["true"], pipeStdin=True, tty=tty)
        await wire.event(name, "process/closed")
        assert await wire.write(name, b"late", "1") == "accepted"


@requirement("process/write:stdin-given-up")
async def test_a_child_that_closed_its_input_is_still_alive_to_the_caller(wire):
    await wire.start("p", ["sh", "-c", "exec 0</dev/null; echo ready; sleep 60"], pipeStdin=True)
    await wire.output_until("p", b"ready")
    for number in range(3):
        assert await wire.write("p", b"x" * 100_000, str(number)) == "accepted"
    page = await wire.call("process/read", {"processId": "p"})
    assert page["exited"] is False


@requirement("process/write:after-terminate")
async def test_a_write_after_terminate_fails(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await wire.write("p", b"x", "old") == "accepted"
    await wire.call("process/terminate", {"processId": "p"})
    params = {"processId": "p", "chunk": "", "writeId": "new"}
    error = await wire.error("process/write", params)
    assert error == {"code": -32603, "message": "failed to write to process stdin"}
    assert await wire.write("p", b"x", "old") == "accepted"


@requirement("process/write:empty")
async def test_an_empty_chunk_writes_nothing(wire):
    await wire.start("p", ["cat"], pipeStdin=True)
    assert await wire.write("p", b"", "1") == "accepted"
    assert await wire.write("p", b"x", "2") == "accepted"
    assert await wire.output_until("p", b"x") == b"x"


@requirement("process/write:queue")
async def test_a_full_queue_makes_the_next_write_wait():
    async with (
        server_with(stdin_queue_writes=4) as server,
        connected(server.url, concurrentRequests=64) as wire,
    ):
        await wire.start("p", child("reads_when_told.py"), pipeStdin=True)
        await wire.output_until("p", b"ready")
        chunk = base64.b64encode(bytes(1 << 16)).decode()
        writes = [
            await wire.request(
                "process/write", {"processId": "p", "chunk": chunk, "writeId": str(number)}
            )
            for number in range(40)
        ]
        # Its answer comes after those of all writes that were accepted at once.
        await wire.call("environment/status")
        accepted = [message["id"] for message in wire.unread if "id" in message]
        # The content of the pipe, the current write, and the queue.
        assert accepted == writes[: len(accepted)]
        assert 5 <= len(accepted) < 40
        assert await wire.call("process/signal", {"processId": "p", "signal": "SIGUSR1"}) == {}
        for request_id in writes:
            assert (await wire.answer(request_id))["result"] == {"status": "accepted"}
        assert await wire.call("process/closeStdin", {"processId": "p"}) == {"status": "accepted"}
        assert await wire.output_until("p", b"\n") == b"%d\n" % (40 << 16)


@requirement("process/write:queue")
async def test_a_waiting_write_ends_with_the_child():
    async with (
        server_with(stdin_queue_writes=1) as server,
        connected(server.url, concurrentRequests=64) as wire,
    ):
        await wire.start("p", ["sleep", "60"], pipeStdin=True)
        chunk = base64.b64encode(bytes(1 << 20)).decode()
        writes = [
            await wire.request(
                "process/write", {"processId": "p", "chunk": chunk, "writeId": str(number)}
            )
            for number in range(8)
        ]
        assert await wire.call("process/terminate", {"processId": "p"}) == {"running": True}
        for request_id in writes:
            assert "id" in await wire.answer(request_id)
        await wire.event("p", "process/closed")


@requirement("process/write:queue", "session:pending-requests-are-abandoned")
async def test_a_write_that_waited_when_its_client_vanished_was_never_accepted():
    async with server_with(stdin_queue_writes=1) as server:
        async with Wire(server.url) as first:
            session_id = (await first.initialize())["sessionId"]
            await first.start("p", child("reads_when_told.py"), pipeStdin=True)
            await first.output_until("p", b"ready")
            chunk = base64.b64encode(bytes(1 << 20)).decode()
            for number in range(8):
                params = {"processId": "p", "chunk": chunk, "writeId": str(number)}
                await first.request("process/write", params)
            # Requests are serial: an answer to the status would mean that no write waits.
            await first.request("environment/status")
            first.cut()
        second = await resumed(server.url, session_id)
        await second.call("process/signal", {"processId": "p", "signal": "SIGUSR1"})
        # The client repeats the writes without an answer, with the same ids.
        for number in range(8):
            params = {"processId": "p", "chunk": chunk, "writeId": str(number)}
            assert (await second.call("process/write", params))["status"] == "accepted"
        await second.call("process/closeStdin", {"processId": "p"})
        # Every write arrived, and none arrived twice.
        assert await second.output_until("p", b"\n") == b"%d\n" % (8 << 20)
        second.cut()


@requirement("process/write:terminal")
async def test_a_terminal_gets_what_is_written_as_typed(wire):
    await wire.start("p", ["sh", "-c", "stty -echo; echo ready; cat"], tty=True)
    await wire.output_until("p", b"ready\r\n")
    assert await wire.write("p", b"one\rtwo\n", "1") == "accepted"
    assert await wire.output_until("p", b"two\r\n") == b"one\r\ntwo\r\n"


@requirement("process/write:waits-once")
async def test_a_write_repeated_while_it_waits_for_room_is_done_once():
    block = base64.b64encode(bytes(1 << 20)).decode()
    counts_when_told = 'trap go=1 USR1; echo ready; until [ "$go" ]; do sleep .01; done; wc -c'
    async with (
        server_with(stdin_queue_writes=1) as server,
        connected(server.url, concurrentRequests=64) as wire,
    ):
        await wire.start("p", ["sh", "-c", counts_when_told], pipeStdin=True)
        await wire.output_until("p", b"ready")
        ids = ["1", "2", "3", "same", "same", "same"]
        requests = [
            await wire.request("process/write", {"processId": "p", "chunk": block, "writeId": i})
            for i in ids
        ]
        # This is a barrier: its answer comes after every earlier write was read.
        await wire.call("environment/status")
        await wire.call("process/signal", {"processId": "p", "signal": "SIGUSR1"})
        for request in requests:
            assert (await wire.answer(request))["result"] == {"status": "accepted"}
        await wire.call("process/closeStdin", {"processId": "p"})
        assert int(Finished(await wire.events_until_closed("p")).stdout) == 4 << 20
