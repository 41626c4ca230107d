"""Sessions outlive their connections: detach, resume, expire."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.requirements import requirement
from tests.support.children import Watched
from tests.support.local import connected, resumed, server_with
from tests.support.raw import CLOSE, RawSocket
from tests.support.tether import Tether
from tests.support.wire import Wire, decoded

# Prints its pid, then every line it is sent.
ECHO = ["sh", "-c", 'echo $$; while read -r line; do echo "$line"; done']


async def start_echo(wire: Wire, process_id: str = "p") -> int:
    """Start it and return its pid."""
    await wire.start(process_id, ECHO, pipeStdin=True)
    return int(decoded(await wire.event(process_id, "process/output")))


@requirement("session:processes-are-private")
async def test_process_ids_are_private_to_a_session(server, wire):
    async with connected(server.url) as other:
        await wire.start("p", ["sh", "-c", "echo mine; sleep 60"])
        assert (await other.error("process/read", {"processId": "p"}))["code"] == -32600
        assert await other.write("p", b"x", "1") == "unknownProcess"
        assert await other.call("process/terminate", {"processId": "p"}) == {"running": False}
        assert await other.call("process/list") == {"processes": []}
        finished = await other.run("p", ["echo", "theirs"])
        assert finished.stdout == b"theirs\n"
        assert await wire.output_until("p", b"\n") == b"mine\n"


@requirement("session:resume", "session:nothing-missed-is-pushed", "session:state-carries-over")
async def test_a_resumed_session_has_its_processes_numbers_and_write_ids(server, tmp_path):
    with Tether(tmp_path) as tether:
        async with Wire(server.url) as first:
            session_id = (await first.initialize())["sessionId"]
            echo = 'while read -r line; do echo "$line"; echo "$line" >&9; done'
            await first.start("p", ["sh", "-c", f"exec 9>{tether.path}; {echo}"], pipeStdin=True)
            assert await first.write("p", b"one\n", "1") == "accepted"
            assert (await first.event("p", "process/output"))["seq"] == 1
            assert await first.write("p", b"two\n", "2") == "accepted"
            first.cut()
        # The output may have come before or after the loss; by now it is there.
        await tether.heard(b"two\n")
        second = await resumed(server.url, session_id)
        page = await second.call("process/read", {"processId": "p", "afterSeq": 1, "waitMs": 5000})
        assert [(chunk["seq"], decoded(chunk)) for chunk in page["chunks"]] == [(2, b"two\n")]
        assert page["nextSeq"] == 3
        # The write was accepted before, so it is not done again.
        assert await second.write("p", b"again\n", "2") == "accepted"
        assert await second.write("p", b"three\n", "3") == "accepted"
        event = await second.event("p", "process/output")
        assert (event["seq"], decoded(event)) == (3, b"three\n")
        # Missed output is not sent as events; a read returns it.
        assert second.unread == []
        second.cut()


@requirement("session:detached-output-is-retained")
async def test_output_is_numbered_and_retained_while_detached(server, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with Wire(server.url) as first:
        session_id = (await first.initialize())["sessionId"]
        await first.start("p", ["sh", "-c", f"echo $$; cat {gate}; echo err >&2; exit 5"])
        child = Watched(int(decoded(await first.event("p", "process/output"))))
        first.cut()
        await first.closed()
    with gate.open("wb") as pipe:
        pipe.write(b"late\n")
    await child.ended()
    second = await resumed(server.url, session_id)
    page = await second.call("process/read", {"processId": "p", "afterSeq": 1})
    while not page["closed"]:
        page = await second.call("process/read", {"processId": "p", "afterSeq": 1})
    said = {chunk["stream"]: decoded(chunk) for chunk in page["chunks"]}
    assert said == {"stdout": b"late\n", "stderr": b"err\n"}
    assert (page["nextSeq"], page["exitCode"]) == (6, 5)
    second.cut()


@requirement("session:no-takeover")
async def test_a_held_session_is_not_taken_over(server):
    async with Wire(server.url) as holder, Wire(server.url) as other:
        session_id = (await holder.initialize())["sessionId"]
        await start_echo(holder)
        error = await other.error("initialize", {"clientName": "x", "resumeSessionId": session_id})
        assert error == {
            "code": -32010,
            "message": f"session {session_id} is already attached to another connection",
        }
        # The connection that holds the session notices nothing.
        assert await holder.write("p", b"still here\n", "1") == "accepted"
        assert await holder.output_until("p", b"here\n") == b"still here\n"


@requirement("session:unknown")
async def test_an_unknown_session_is_refused(server):
    async with Wire(server.url) as wire:
        session_id = "00000000-0000-4000-8000-000000000000"
        error = await wire.error("initialize", {"clientName": "x", "resumeSessionId": session_id})
        assert error == {"code": -32600, "message": f"unknown session id {session_id}"}


@requirement("session:expiry", "session:expiry-kills")
async def test_a_detached_session_ends_with_all_its_processes():
    async with server_with(detached_session_seconds=0.2) as server:
        async with Wire(server.url) as first:
            session_id = (await first.initialize())["sessionId"]
            # Only SIGKILL ends these children, and process/terminate sends it.
            children = []
            for process_id, tty in (("pipes", False), ("tty", True)):
                await first.start(
                    process_id,
                    ["sh", "-c", "trap '' TERM HUP INT; echo $$; sleep 60 & wait"],
                    tty=tty,
                )
                line = decoded(await first.event(process_id, "process/output"))
                children.append(Watched(int(line)))
            first.cut()
        for child in children:
            await child.ended()
        async with Wire(server.url) as second:
            params = {"clientName": "x", "resumeSessionId": session_id}
            error = await second.error("initialize", params)
            assert error == {"code": -32600, "message": f"unknown session id {session_id}"}


@requirement("session:fresh-window")
async def test_an_attached_session_does_not_expire():
    async with server_with(detached_session_seconds=0.1) as server:
        async with Wire(server.url) as first:
            kept = (await first.initialize())["sessionId"]
            child = Watched(await start_echo(first))
            first.cut()
        second = await resumed(server.url, kept)
        # A session that is detached later and expires shows that the window has passed.
        async with Wire(server.url) as other:
            await other.initialize()
            expiring = Watched(await start_echo(other))
            other.cut()
        await expiring.ended()
        assert await second.write("p", b"alive\n", "1") == "accepted"
        assert await second.output_until("p", b"alive\n")
        second.cut()
        await child.ended()


@requirement("session:pending-requests-are-abandoned")
async def test_a_pending_poll_does_not_delay_a_resume(server):
    async with Wire(server.url) as first:
        session_id = (await first.initialize())["sessionId"]
        await start_echo(first)
        params = {"processId": "p", "afterSeq": 1, "waitMs": 600_000}
        await first.request("process/read", params)
        # This request waits behind the poll, so it is never read.
        await first.request("process/terminate", {"processId": "p"})
        first.cut()
    async with asyncio.timeout(60):
        second = await resumed(server.url, session_id)
    assert await second.write("p", b"alive\n", "1") == "accepted"
    assert await second.output_until("p", b"alive\n") == b"alive\n"
    second.cut()


@pytest.mark.parametrize("ending", ["close frame", "end of stream", "reset", "violation"])
@requirement("session:detach", "websocket:every-end-disconnects")
async def test_however_a_connection_ends_its_session_can_be_resumed(server, ending):
    async with RawSocket(server.url) as first:
        await first.upgrade()
        await first.send_json({"id": 1, "method": "initialize", "params": {"clientName": "x"}})
        session_id = (await first.receive_json())["result"]["sessionId"]
        if ending == "close frame":
            await first.send_frame(CLOSE, b"\x03\xe8")
        elif ending == "end of stream":
            first.writer.write_eof()
        elif ending == "violation":
            await first.send_json({"method": "no/such"})
        else:
            first.writer.transport.abort()
        if ending != "reset":
            await first.at_end()
    second = await resumed(server.url, session_id)
    assert await second.call("environment/status") == {"status": "ready"}
    second.cut()


@requirement("session:start-survives-its-connection")
async def test_a_start_whose_client_vanished_is_found_by_the_resumed_one(server):
    async with Wire(server.url) as first:
        session_id = (await first.initialize())["sessionId"]
        await first.request(
            "process/start",
            {
                "processId": "p",
                "argv": ["sleep", "60"],
                "cwd": "file:///",
                "env": {},
                "tty": False,
            },
        )
        await first.send({"method": "no/such"})
        await first.closed()
    second = await resumed(server.url, session_id)
    result = await second.call("process/terminate", {"processId": "p"})
    # Only a start that was read before the connection ended was done.
    assert result == {"running": True}
    second.cut()


async def test_a_session_has_a_table_of_processes_once_it_needs_one(server):
    async with connected(server.url) as wire:
        (session,) = server.core.sessions
        assert session.made_processes is None and not session.has_processes
        await wire.start("p", ["true"])
        assert session.has_processes
