"""The server's side of streams: rights, limits, the audit log, and what clients get wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from typing import Any

import pytest

from exec_server.access.principal import Floors, SandboxFloor
from exec_server.audit.audit_file import AuditLines
from exec_server.client_urls import connect
from exec_server.errors import FloorRefused, QuotaReached, ScopeRefused
from exec_server.limits import Limits
from exec_server.server.server_audit import ServerAudit
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.local import resumed
from tests.support.principals import MadePrincipals
from tests.support.wire import PATIENCE, Wire


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def opening(port, **params):
    return {"streamId": "s", "host": "127.0.0.1", "port": port, **params}


@requirement("streams/wire:repeat", "streams/wire:malformed")
async def test_what_is_wrong_concerns_one_stream_alone(wire, listener):
    first = await wire.call("stream/open", opening(listener, window=1000))
    again = await wire.call("stream/open", opening(listener, window=1000))
    assert first["window"] == again["window"] == 1000
    await wire.call("stream/open", opening(listener, streamId="t"))
    chunk = base64.b64encode(b"x").decode()
    await wire.send(
        {"method": "stream/data", "params": {"streamId": "s", "position": 9, "chunk": chunk}}
    )
    for name in ("data", "end", "ack", "reset"):
        params = {"streamId": "unknown", "position": 1, "chunk": chunk, "reason": "none"}
        await wire.send({"method": f"stream/{name}", "params": params})
    found = (await wire.call("stream/list", {}))["streams"]
    assert [each["id"] for each in found] == ["t"]
    wrong: list[dict[str, Any]] = [
        {"streamId": "u"},
        {"streamId": "u", "port": 1, "path": "/x"},
        {"streamId": "u", "path": "relative"},
        {"streamId": "", "port": 1},
        {"streamId": "u", "port": 70000},
        {"streamId": "u", "port": 1, "window": 0},
        {"streamId": "u", "host": "a b", "port": 1},
    ]
    for params in wrong:
        assert (await wire.error("stream/open", params))["code"] == -32602, params


@requirement("streams/wire:malformed")
async def test_an_event_of_another_shape_ends_the_connection(wire, listener):
    await wire.call("stream/open", opening(listener))
    await wire.send({"method": "stream/data", "params": {"streamId": "s", "position": "x"}})
    assert (await wire.receive())["error"]["code"] == -32600
    await wire.closed()


@requirement("streams/wire:cleanup")
async def test_streams_that_are_not_resumed_are_dropped(no_leaks, listener):
    limits = Limits(stream_resume_seconds=0.01)
    async with asyncio.timeout(PATIENCE), serve(limits=limits) as running:
        async with Wire(running.url) as first:
            session = (await first.initialize())["sessionId"]
            await first.call("stream/open", opening(listener))
            await first.call("stream/listen", {"listenerId": "l", "host": "", "port": 0})
        second = await resumed(running.url, session)
        try:
            while (await second.call("stream/list", {}))["streams"]:
                pass
            result = await second.call(
                "stream/resume", {"streams": {"s": {"received": 0}}, "listeners": {"l": 0}}
            )
            assert result["listeners"] == []
            assert result["streams"]["s"]["reset"]
        finally:
            await second.__aexit__(None, None, None)


@requirement("streams/rules:limits")
async def test_a_session_has_a_bounded_number_of_streams(no_leaks, listener):
    limits = Limits(session_streams=2, session_listeners=1)
    async with serve(limits=limits) as running, connect(running.url) as client:
        pairs = [await client.open_connection("127.0.0.1", listener) for _ in range(2)]
        with pytest.raises(QuotaReached):
            await client.open_connection("127.0.0.1", listener)
        for _, writer in pairs:
            writer.close()
        await client.start_server(lambda reader, writer: writer.close())
        with pytest.raises(QuotaReached):
            await client.start_server(lambda reader, writer: writer.close())


@requirement("streams/rules:floors")
async def test_floors_are_not_escaped_by_streams(no_leaks, listener, tmp_path):
    people = MadePrincipals(tmp_path)
    people.add("free")
    people.add("reader", "files:read")
    people.add("boxed", floors=Floors(sandbox=SandboxFloor(kind="read-only", network=True)))
    people.add("hosted", floors=Floors(hosts=("127.0.0.1",)))
    path = str(tmp_path / "sock")

    async def failures(name):
        """The kinds of errors of an open, an open elsewhere, of a path, and of a listener."""
        found: list[type] = []
        opened = []
        async with connect(running.url, token=people.tokens[name]) as client:
            for attempt in (
                client.open_connection("127.0.0.1", listener),
                client.open_connection("localhost", listener),
                client.open_unix_connection(path),
                client.start_server(lambda reader, writer: writer.close()),
            ):
                try:
                    opened.append(await attempt)
                    found.append(type(None))
                except Exception as exc:
                    found.append(type(exc))
        return found

    async with (
        await asyncio.start_unix_server(lambda reader, writer: writer.close(), path),
        serve(principals=people.path, stream_allow=["unix:/*"]) as running,
    ):
        assert await failures("free") == [type(None)] * 4
        assert await failures("reader") == [ScopeRefused] * 4
        assert await failures("boxed") == [FloorRefused] * 4
        assert await failures("hosted") == [type(None)] + [FloorRefused] * 3


@requirement("streams/rules:audit")
async def test_the_audit_log_has_streams_refusals_and_ends(no_leaks, tmp_path):
    path = tmp_path / "audit"
    audit = ServerAudit(AuditLines(str(path)))
    async with (
        asyncio.timeout(PATIENCE),
        serve(audit=audit) as running,
        connect(running.url) as client,
        listening(echo) as port,
    ):
        reader, writer = await client.open_connection("127.0.0.1", port)
        writer.write(b"12345")
        writer.write_eof()
        assert await reader.read() == b"12345"
        writer.close()
        await writer.wait_closed()
        with pytest.raises(FloorRefused):
            await client.open_connection("192.0.2.1", 80)
        (await client.start_server(echo)).close()
        await client.list_streams()
    audit.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    opened, refused = (line for line in lines if line["name"] == "stream/open")
    assert opened["detail"] == f"127.0.0.1:{port}" and "code" not in opened
    assert refused["detail"] == "192.0.2.1:80" and refused["code"] == -32021
    (ended,) = (line for line in lines if line["name"] == "stream ended")
    assert (ended["bytes_in"], ended["bytes_out"]) == (5, 5)
    assert [line["name"] for line in lines].count("stream/listen") == 1


@requirement("streams/ports:found")
async def test_ports_of_processes_are_found(no_leaks):
    program = (
        "import socket, sys, subprocess\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with asyncio.timeout(PATIENCE), serve() as running, connect(running.url) as client:
        process = await client.start(["sh", "-c", 'python3 -c "$0"; true', program], stdin=True)
        port = int(await process.stdout.readline())
        (found,) = await client.listening_ports()
        assert (found.port, found.addresses) == (port, ["127.0.0.1"])
        assert found.process_id == process.process_id
        assert await client.listening_ports("another") == []
        async with connect(running.url) as other:
            assert await other.listening_ports() == []
            assert [each.port for each in await other.listening_ports(all_sessions=True)] == [port]
        await process.close_stdin()
        await process.wait()
