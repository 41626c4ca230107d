"""A client that does not read: its children wait, and other clients do not notice."""

from __future__ import annotations

import asyncio

import pytest

from exec_server.limits import Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support import leaks
from tests.support.children import child
from tests.support.faults import Deaf, request, resident_mib
from tests.support.raw import CLOSE, CONTINUATION, PING, TEXT, frame
from tests.support.servers import start_server
from tests.support.tether import Tether
from tests.support.wire import Wire, start_params

# How long a pipe without room counts as blocked: a busy machine has shorter pauses.
PATIENCE = 0.3
# What a server may grow by: its buffers for one connection, and what the allocator keeps.
ALLOWED_MIB = 24


@requirement(
    "flow:child-blocks", "flow:memory-is-flat", "flow:others-unaffected", "flow:terminate-unread"
)
@pytest.mark.one_loop
@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_the_child_of_a_client_that_does_not_read_waits(tmp_path, tty):
    with Tether(tmp_path) as tether, start_server() as server:
        before = resident_mib(server.pid)
        async with Deaf(server.url) as deaf, Wire(server.url) as other:
            await deaf.initialize()
            argv = child("says_when_blocked.py", tether.path, PATIENCE)
            await deaf.start("p", argv, tty=tty)
            await tether.heard(b"blocked")
            assert resident_mib(server.pid) - before < ALLOWED_MIB
            await other.initialize()
            assert (await other.run("q", ["echo", "hello"])).stdout == b"hello\n"
            assert tether.said == b"blocked\n"
            # What is sent by a client that does not read is heard all the same.
            await deaf.request("process/terminate", {"processId": "p"})
            await tether.released()


@requirement("flow:detach-lets-run", "flow:memory-is-flat")
@pytest.mark.parametrize("how", ["cut", "close frame", "half-close"])
async def test_a_blocked_child_runs_on_when_its_client_is_gone(server, tmp_path, how):
    with Tether(tmp_path) as tether:
        async with Deaf(server.url) as deaf:
            session_id = await deaf.initialize()
            await deaf.start("p", child("says_when_blocked.py", tether.path, PATIENCE))
            await tether.heard(b"blocked")
            if how == "close frame":
                await deaf.send_frame(CLOSE, b"\x03\xe8")
            elif how == "half-close":
                deaf.writer.write_eof()
            else:
                deaf.writer.transport.abort()
            # Although most of what it was sent is still unread in the last two cases.
            await tether.heard(b"running")
            async with Wire(server.url) as wire:
                await wire.initialize(resumeSessionId=session_id)
                await wire.output_until("p", b"x\n")
                await wire.call("process/terminate", {"processId": "p"})
                await wire.event("p", "process/closed")
        await tether.released()


@requirement("flow:resume-unread")
async def test_what_a_new_connection_does_not_read_holds_its_resumed_processes_back(
    server, tmp_path
):
    with Tether(tmp_path) as tether:
        async with Wire(server.url) as wire:
            session_id = (await wire.initialize())["sessionId"]
            await wire.start("p", child("says_when_blocked.py", tether.path, PATIENCE))
        async with Deaf(server.url) as deaf:
            await deaf.initialize(resumeSessionId=session_id)
            await tether.heard(b"blocked")
            await deaf.request("process/terminate", {"processId": "p"})
            await tether.released()


@requirement("flow:unread-before-initialize")
@pytest.mark.one_loop
async def test_a_client_that_was_behind_before_the_handshake_is_behind_after_it(tmp_path):
    with Tether(tmp_path) as tether, start_server() as server:
        async with Deaf(server.url) as deaf:
            await deaf.upgrade()
            before = resident_mib(server.pid)
            # Each is answered with an error that is not read: more than a socket holds, less
            # than makes the server wait.
            nonsense = frame(TEXT, b"[]") * 1000
            for _ in range(32):
                await deaf.send(nonsense)
            initialize = {"id": 1, "method": "initialize", "params": {"clientName": "deaf"}}
            await deaf.send_json(initialize)
            await deaf.send_json({"method": "initialized"})
            argv = child("says_when_blocked.py", tether.path, PATIENCE)
            await deaf.request("process/start", start_params("p", argv))
            await tether.heard(b"blocked")
            assert resident_mib(server.pid) - before < ALLOWED_MIB


FLOODS = {
    "malformed": frame(TEXT, b"[]") * 1000,
    "unknown": request("no/such/method") * 1000,
    "pings": frame(PING, b"x" * 125) * 1000,
    "answers": request("environment/info") * 1000,
    "large answers": request("process/read", {"processId": "p"}) * 200,
}


@requirement("flow:unread-answers")
@pytest.mark.one_loop
@pytest.mark.parametrize(
    ("flood", "concurrency"), [*((name, 1) for name in FLOODS), ("large answers", 64)]
)
async def test_answers_that_nobody_reads_do_not_pile_up(flood, concurrency):
    with start_server() as server:
        async with Deaf(server.url) as deaf, Wire(server.url) as other:
            session_id = await deaf.initialize(concurrentRequests=concurrency)
            await deaf.start("p", ["head", "-c", "1000000", "/dev/zero"])
            while (await deaf.receive_json()).get("method") != "process/closed":
                pass
            before = resident_mib(server.pid)
            # Twice what sockets and server may hold, or until the server reads no more.
            try:
                async with asyncio.timeout(1):
                    for _ in range(200):
                        deaf.writer.write(FLOODS[flood])
                        await deaf.writer.drain()
            except TimeoutError:
                pass
            # A client that is alive and waits its turn is answered.
            await other.initialize()
            assert await other.call("environment/status") == {"status": "ready"}
            assert resident_mib(server.pid) - before < ALLOWED_MIB
            deaf.writer.transport.abort()
        async with Wire(server.url) as wire:
            await wire.initialize(resumeSessionId=session_id)


@requirement("flow:unread-answers")
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_answers_that_were_held_back_come_once_the_client_reads(no_leaks, concurrency):
    limits = Limits(unread_answer_bytes=1 << 17)
    async with serve(limits=limits) as running, Deaf(running.url) as deaf:
        await deaf.initialize(concurrentRequests=concurrency)
        await deaf.start("p", ["head", "-c", "1000000", "/dev/zero"])
        while (await deaf.receive_json()).get("method") != "process/closed":
            pass
        deaf.writer.write(request("process/read", {"processId": "p"}) * 100)
        deaf.writer.write(frame(TEXT, b"[]") + request("environment/status"))
        answers = [await deaf.receive_json() for _ in range(102)]
        assert sum("chunks" in answer.get("result", {}) for answer in answers) == 100
        assert sum(answer["id"] == -1 for answer in answers) == 1
        assert sum(answer.get("result") == {"status": "ready"} for answer in answers) == 1


@requirement("flow:waiting-bytes")
@pytest.mark.one_loop
@pytest.mark.parametrize("concurrency", [1, 64])
async def test_large_requests_that_wait_are_bounded(concurrency):
    with start_server() as server:
        async with Deaf(server.url) as deaf:
            await deaf.initialize(concurrentRequests=concurrency)
            await deaf.start("p", ["sleep", "60"], pipeStdin=True)
            before = resident_mib(server.pid)
            # 6 MiB each, to a child that reads nothing; those beyond the queue wait.
            write = request("process/write", {"processId": "p", "chunk": "eHh4" * (2 << 20)})
            try:
                async with asyncio.timeout(3):
                    for _ in range(200):
                        deaf.writer.write(write)
                        await deaf.writer.drain()
            except TimeoutError:
                pass
            # The input queue, what waits for it, messages that are being read, and what the
            # allocator keeps of them; all would be more than a gigabyte.
            assert resident_mib(server.pid) - before < 400


@requirement("flow:tiny-fragments")
@pytest.mark.one_loop
@pytest.mark.parametrize("piece", [b"", b"xy"], ids=["empty", "two"])
async def test_a_message_of_tiny_pieces_costs_no_more_than_its_bytes(piece):
    with start_server() as server:
        async with Deaf(server.url) as deaf:
            await deaf.upgrade()
            before = resident_mib(server.pid)
            await deaf.send(frame(TEXT, b'"', fin=False))
            pieces = frame(CONTINUATION, piece, fin=False) * 10_000
            for _ in range(60):
                await deaf.send(pieces)
            await deaf.send(frame(CONTINUATION, b'"'))
            assert (await deaf.receive_json())["id"] == -1
            assert resident_mib(server.pid) - before < ALLOWED_MIB


@requirement("flow:silent-polls")
async def test_polls_that_run_out_of_time_leave_nothing_behind(server, wire):
    await wire.start("p", ["sleep", "60"])
    (session,) = server.core._sessions.values()
    process = session.processes._readable("p")
    for _ in range(20):
        await wire.call("process/read", {"processId": "p", "waitMs": 1})
    await leaks.eventually(lambda: not process._waiters)
