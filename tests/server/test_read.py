"""process/read: paging, waiting, and the state of the process."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.local import connected, server_with
from tests.support.wire import Wire, decoded


@pytest.fixture
def gate(tmp_path):
    """A FIFO; `cat` of it prints nothing until a writer writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


async def read(wire: Wire, **params):
    return await wire.call("process/read", {"processId": "p", **params})


def seqs(page) -> list[int]:
    return [chunk["seq"] for chunk in page["chunks"]]


async def five_chunks(wire: Wire) -> None:
    """Chunks 1 to 5 of six bytes, the exit 6 and the close 7."""
    script = "for i in 1 2 3 4 5; do read x; echo line$i; done"
    await wire.start("p", ["sh", "-c", script], pipeStdin=True)
    for number in range(1, 6):
        await wire.write("p", b"\n", str(number))
        assert (await wire.event("p", "process/output"))["seq"] == number
    assert (await wire.event("p", "process/closed"))["seq"] == 7


@requirement("process/read:paging-examples", "process/read:max-bytes", "process/read:next-seq")
async def test_the_examples_of_the_specification(wire):
    await five_chunks(wire)
    pages: list[tuple[dict[str, Any], list[int], int]] = [
        ({}, [1, 2, 3, 4, 5], 8),
        ({"afterSeq": None, "maxBytes": None, "waitMs": None}, [1, 2, 3, 4, 5], 8),
        ({"afterSeq": 3}, [4, 5], 8),
        ({"afterSeq": 5}, [], 8),
        ({"afterSeq": 1000}, [], 8),
        ({"maxBytes": 0}, [1], 2),
        ({"maxBytes": 1}, [1], 2),
        ({"maxBytes": 11}, [1], 2),
        ({"maxBytes": 12}, [1, 2], 3),
        ({"maxBytes": 30}, [1, 2, 3, 4, 5], 6),
        ({"maxBytes": 12, "afterSeq": 3}, [4, 5], 6),
        ({"maxBytes": 10, "afterSeq": 5}, [], 8),
    ]
    for params, chunks, next_seq in pages:
        page = await read(wire, **params)
        assert (seqs(page), page["nextSeq"]) == (chunks, next_seq), params


@requirement("process/read:result")
async def test_the_answer_has_all_members(wire):
    await wire.run("p", ["sh", "-c", "echo out; exit 9"])
    assert await read(wire) == {
        "chunks": [{"seq": 1, "stream": "stdout", "chunk": "b3V0Cg=="}],
        "nextSeq": 4,
        "exited": True,
        "exitCode": 9,
        "closed": True,
        "failure": None,
        "sandboxDenied": False,
    }


@requirement("process/read:result", "process/read:describes-now")
async def test_a_running_process_has_no_exit_code(wire):
    await wire.start("p", ["sh", "-c", "echo out; sleep 60"])
    await wire.event("p", "process/output")
    page = await read(wire, maxBytes=100)
    assert (page["exited"], page["exitCode"], page["closed"]) == (False, None, False)
    assert page["nextSeq"] == 2


@requirement("process/read:describes-now")
async def test_the_state_is_that_of_now_even_if_output_is_left(wire):
    await wire.run("p", ["sh", "-c", "echo one; echo two >&2; exit 3"])
    page = await read(wire, maxBytes=0)
    assert len(page["chunks"]) == 1
    assert (page["exited"], page["exitCode"], page["closed"]) == (True, 3, True)


@requirement("process/read:continue-at-next-seq", "process/read:streams")
async def test_paging_through_gives_everything_once(wire):
    finished = await wire.run("p", ["sh", "-c", "seq 1 20000; seq 1 100 >&2"])
    said: dict[str, bytes] = {}
    cursor, pages = 0, 0
    while (page := await read(wire, afterSeq=cursor, maxBytes=20_000))["chunks"]:
        for chunk in page["chunks"]:
            said[chunk["stream"]] = said.get(chunk["stream"], b"") + decoded(chunk)
        assert sum(len(decoded(chunk)) for chunk in page["chunks"]) <= 20_000
        cursor, pages = page["nextSeq"] - 1, pages + 1
    assert said == {"stdout": finished.stdout, "stderr": finished.stderr}
    assert said["stdout"].split() == [b"%d" % n for n in range(1, 20_001)]
    assert pages > 5


# Waiting.


@requirement("process/read:wait-for-output")
async def test_a_poll_is_answered_by_the_first_output(wire, gate):
    await wire.start("p", ["sh", "-c", f"cat {gate}; sleep 60"])
    request_id = await wire.request("process/read", {"processId": "p", "waitMs": 600_000})
    gate.write_bytes(b"news\n")
    page = (await wire.answer(request_id))["result"]
    assert [decoded(chunk) for chunk in page["chunks"]] == [b"news\n"]
    assert page["exited"] is False


@requirement("process/read:wait-after-cursor")
async def test_a_poll_is_not_answered_by_what_its_caller_knows(wire, gate):
    await wire.start("p", ["sh", "-c", f"echo old; cat {gate}; sleep 60"])
    await wire.event("p", "process/output")
    request_id = await wire.request(
        "process/read", {"processId": "p", "afterSeq": 1, "waitMs": 600_000}
    )
    gate.write_bytes(b"new\n")
    page = (await wire.answer(request_id))["result"]
    assert [(chunk["seq"], decoded(chunk)) for chunk in page["chunks"]] == [(2, b"new\n")]


@requirement("process/read:wait-for-exit")
async def test_a_poll_is_answered_by_the_exit(wire, gate, tmp_path):
    holder = tmp_path / "holder"
    os.mkfifo(holder)
    await wire.start("p", ["sh", "-c", f"cat {holder} & cat {gate}; exit 3"])
    request_id = await wire.request("process/read", {"processId": "p", "waitMs": 600_000})
    gate.write_bytes(b"")
    page = (await wire.answer(request_id))["result"]
    assert page["chunks"] == []
    # The process has exited, but a background process holds the pipes.
    assert (page["exited"], page["exitCode"], page["closed"]) == (True, 3, False)
    assert page["nextSeq"] == 2
    # For a client that knows of the exit, only later output or the close is new.
    known = await wire.request("process/read", {"processId": "p", "afterSeq": 1, "waitMs": 600_000})
    holder.write_bytes(b"late\n")
    page = (await wire.answer(known))["result"]
    assert [(chunk["seq"], decoded(chunk)) for chunk in page["chunks"]] == [(2, b"late\n")]


@requirement("process/read:wait-for-close")
async def test_a_poll_is_answered_by_the_close(wire, gate):
    await wire.start("p", ["sh", "-c", f"cat {gate} >&2 & exit 0"])
    await wire.event("p", "process/exited")
    request_id = await wire.request(
        "process/read", {"processId": "p", "afterSeq": 1, "waitMs": 600_000}
    )
    gate.write_bytes(b"")
    page = (await wire.answer(request_id))["result"]
    assert (page["chunks"], page["closed"], page["nextSeq"]) == ([], True, 3)


@pytest.mark.parametrize("cursor", [0, 1, 2, 3, 1000, 2**64 - 1])
@requirement("process/read:closed-answers-at-once")
async def test_a_closed_process_is_never_waited_for(wire, cursor):
    await wire.run("p", ["true"])
    page = await read(wire, afterSeq=cursor, waitMs=2**64 - 1)
    assert (page["closed"], page["chunks"], page["nextSeq"]) == (True, [], 3)


@requirement("process/read:wait-ends")
async def test_a_poll_without_news_ends_after_its_time(wire):
    await wire.start("p", ["sleep", "60"])
    begun = time.monotonic()
    page = await read(wire, waitMs=120)
    assert time.monotonic() - begun >= 0.12
    assert (page["chunks"], page["nextSeq"], page["exited"]) == ([], 1, False)
    assert (await read(wire, waitMs=0))["nextSeq"] == 1


@requirement("process/read:wait-unlimited")
async def test_there_is_no_longest_wait(wire, gate):
    await wire.start("p", ["cat", str(gate)])
    request_id = await wire.request("process/read", {"processId": "p", "waitMs": 2**64 - 1})
    gate.write_bytes(b"at last\n")
    page = (await wire.answer(request_id))["result"]
    assert decoded(page["chunks"][0]) == b"at last\n"


@requirement("process/read:no-missed-wake-up")
async def test_no_wake_up_is_ever_missed():
    async with server_with() as server, connected(server.url, concurrentRequests=8) as wire:
        await wire.start("p", ["cat"], pipeStdin=True)
        cursor = 0
        async with asyncio.timeout(60):
            for number in range(300):
                line = b"%d\n" % number
                poll = await wire.request(
                    "process/read", {"processId": "p", "afterSeq": cursor, "waitMs": 600_000}
                )
                await wire.write("p", line, str(number))
                page = (await wire.answer(poll))["result"]
                assert [decoded(chunk) for chunk in page["chunks"]] == [line]
                cursor = page["nextSeq"] - 1
                wire.unread.clear()


# Errors.


@pytest.mark.parametrize("member", ["afterSeq", "maxBytes", "waitMs"])
@requirement("process/read:numbers", "envelope/integers")
async def test_numbers_are_plain_unsigned_64_bit_integers(wire, member):
    await wire.run("p", ["true"])
    for text in ("-1", "1.0", "1e1", "10.0", '"1"', "true", "[]", "{}", f"{2**64}", "-0.0"):
        await wire.send(
            f'{{"id":"n","method":"process/read","params":{{"processId":"p","{member}":{text}}}}}'
        )
        answer = await wire.answer("n")
        assert answer["error"]["code"] == -32602, text
    for value in (0, None, 2**63, 2**64 - 1):
        assert "chunks" in await read(wire, **{member: value})


@requirement("process/read:unknown")
async def test_an_unknown_process_is_an_error(wire):
    error = await wire.error("process/read", {"processId": "nobody"})
    assert error == {"code": -32600, "message": "unknown process id nobody"}


@requirement("process/read:params")
async def test_a_process_must_be_named(wire):
    for params in (None, {}, {"processId": None}, {"processId": 1}, {"process_id": "p"}):
        assert (await wire.error("process/read", params))["code"] == -32602
