"""Clients that vanish, at every moment and in every way: nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from exec_server.limits import Limits
from exec_server.server.serving import RunningServer, serve
from tests.requirements import requirement
from tests.support import leaks
from tests.support.children import child
from tests.support.faults import Deaf, request
from tests.support.raw import BINARY, TEXT, UPGRADE, RawSocket, frame, request_head
from tests.support.tether import Tether
from tests.support.wire import Wire, start_params

# Sessions that are not resumed are soon gone; so are peers that are behind when they vanish.
QUICK = Limits(detached_session_seconds=0.05, ping_interval=0.1)


@pytest.fixture
async def quick_server(no_leaks: None) -> AsyncIterator[RunningServer]:
    """A server that soon forgets; it must have forgotten everybody at the end."""
    async with serve(limits=QUICK) as running:
        yield running
        await leaks.forgotten(running.core)


def handshake() -> bytes:
    """Upgrade, `initialize` and `initialized` in one go."""
    messages = [
        {"id": 1, "method": "initialize", "params": {"clientName": "gone"}},
        {"method": "initialized"},
    ]
    frames = [frame(TEXT, json.dumps(message).encode()) for message in messages]
    return request_head("GET", "/", UPGRADE) + b"".join(frames)


def start(argv: list[str]) -> bytes:
    return request("process/start", start_params("p", argv, pipeStdin=True))


LONG_POLL = request("process/read", {"processId": "p", "waitMs": 600_000})
WRITE = request("process/write", {"processId": "p", "chunk": "eHg=", "writeId": "1"})
SLEEP = ["sleep", "60"]

# What a client has said when it vanishes.
LAST_WORDS = {
    "nothing": b"",
    "half a request line": b"GET / HT",
    "half a head": request_head("GET", "/", UPGRADE)[:60],
    "an upgrade": request_head("GET", "/", UPGRADE),
    "half a frame header": request_head("GET", "/", UPGRADE) + b"\x81",
    "half a mask": request_head("GET", "/", UPGRADE) + b"\x81\x85\x01\x02",
    "half a frame": handshake() + LONG_POLL[:-5],
    "half a large frame": handshake() + frame(BINARY, bytes(1 << 20))[: 1 << 19],
    "half a message": handshake() + frame(TEXT, b'{"id"', fin=False),
    "a handshake": handshake(),
    "a start": handshake() + start(SLEEP),
    "a start that fails": handshake() + start(["no-such-program"]),
    "a long poll": handshake() + start(SLEEP) + LONG_POLL,
    "many behind a long poll": handshake() + start(SLEEP) + LONG_POLL * 200,
    "a write": handshake() + start(["cat"]) + WRITE * 5,
    "a write that waits": handshake()
    + start(SLEEP)
    + request("process/write", {"processId": "p", "chunk": "eHh4" * 5000}) * 140,
    "a violation": handshake() + frame(TEXT, b'{"method":"no/such/notification"}') + start(SLEEP),
}


@requirement("faults:vanish", "faults:vanish-mid-frame", "faults:nothing-leaks")
@pytest.mark.parametrize("how", ["reset", "half-close", "close"])
@pytest.mark.parametrize("words", LAST_WORDS.values(), ids=LAST_WORDS)
async def test_a_client_that_vanishes_leaves_nothing_behind(quick_server, words, how):
    async with RawSocket(quick_server.url) as sock:
        await sock.send(words)
        if how == "half-close":
            sock.writer.write_eof()
            await sock.at_end()
        elif how == "close":
            sock.writer.close()
        else:
            sock.writer.transport.abort()
    # What it asked for may still be under way; the fixture waits until it is forgotten.


@requirement("faults:thousand-connections", "faults:nothing-leaks")
async def test_a_thousand_connections_come_and_go(quick_server):
    short = [words for words in LAST_WORDS.values() if len(words) < 1 << 20]
    address = urlsplit(quick_server.url)
    loop = asyncio.get_running_loop()

    async def visit(number: int) -> None:
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, (address.hostname, address.port))
            await loop.sock_sendall(sock, short[number % len(short)])

    for batch in range(20):
        await asyncio.gather(*(visit(50 * batch + number) for number in range(50)))
    async with Wire(quick_server.url) as wire:
        await wire.initialize()
        assert await wire.call("environment/status") == {"status": "ready"}


@requirement("faults:start-outlives-its-request")
async def test_a_start_whose_client_vanished_is_there_for_who_resumes(server):
    async with Deaf(server.url) as deaf:
        session_id = await deaf.initialize()
        await deaf.send(start(["cat"]))
        await leaks.eventually(lambda: leaks.remembered(server.core)["starts"])
        deaf.writer.transport.abort()
        await leaks.eventually(lambda: leaks.remembered(server.core)["processes"])
    async with Wire(server.url) as wire:
        await wire.initialize(resumeSessionId=session_id)
        assert await wire.write("p", b"hello\n", "1") == "accepted"
        assert await wire.output_until("p", b"hello")


@requirement("faults:expiry-kills")
async def test_what_a_vanished_client_had_started_ends_with_its_session(quick_server, tmp_path):
    with Tether(tmp_path) as tether:
        async with Deaf(quick_server.url) as deaf:
            await deaf.initialize()
            await deaf.start("p", child("says_its_last_signal.py", tether.path))
            while (await deaf.receive_json())["method"] != "process/output":
                pass
        assert await tether.released() == b""


@requirement("faults:half-open")
@pytest.mark.parametrize("is_mute", [True, False], ids=["mute", "alive"])
async def test_a_peer_that_is_never_heard_of_is_dropped(no_leaks, is_mute):
    limits = Limits(ping_interval=0.02, pong_timeout=2.0, detached_session_seconds=30.0)
    async with serve(limits=limits) as running, Deaf(running.url) as deaf:
        session_id = await deaf.initialize()
        if is_mute:
            # No answer to any ping, as from behind a line that was cut: the server ends it.
            await deaf.at_end()
            await leaks.eventually(lambda: not leaks.remembered(running.core)["connections"])
            async with Wire(running.url) as wire:
                resumed = await wire.initialize(resumeSessionId=session_id)
                assert resumed["sessionId"] == session_id
        else:
            # For longer than a silence may last.
            loop = asyncio.get_running_loop()
            until = loop.time() + 1.5 * limits.pong_timeout
            while loop.time() < until:
                ping = await deaf.receive_frame()
                assert (ping.opcode, ping.payload) == (0x9, b"")
                await deaf.send_frame(0xA)
            assert leaks.remembered(running.core)["connections"] == 1


@requirement("faults:slow-head")
@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n"], ids=["nothing", "half a head"])
async def test_a_client_that_never_finishes_its_request_is_dropped(no_leaks, words):
    limits = Limits(http_head_timeout=0.05)
    async with serve(limits=limits) as running, RawSocket(running.url) as sock:
        await sock.send(words)
        assert await sock.at_end() == b""


@requirement("faults:nothing-leaks")
async def test_stopping_with_clients_in_every_state_leaves_nothing(no_leaks):
    async with serve() as running:
        socks = [RawSocket(running.url) for _ in LAST_WORDS]
        for sock, words in zip(socks, LAST_WORDS.values(), strict=True):
            await sock.__aenter__()
            await sock.send(words)
    for sock in socks:
        await sock.at_end()
        await sock.__aexit__(None, None, None)


@requirement("faults:nothing-leaks", "faults:unix")
async def test_clients_of_a_unix_socket_leave_nothing_behind(no_leaks, tmp_path):
    path = tmp_path / "socket"
    async with serve(f"unix://{path}", limits=QUICK) as running:
        lines = b"".join(
            json.dumps(message).encode() + b"\n"
            for message in (
                {"id": 1, "method": "initialize", "params": {"clientName": "gone"}},
                {"method": "initialized"},
                {"id": 2, "method": "process/start", "params": start_params("p", SLEEP)},
            )
        )
        for words in (b"", b"{", lines, lines[:-20], handshake() + start(SLEEP), b"\xff\n"):
            for is_abrupt in (True, False):
                async with RawSocket(running.url) as sock:
                    await sock.send(words)
                    if not is_abrupt:
                        sock.writer.write_eof()
                        await sock.at_end()
        await leaks.forgotten(running.core)
    assert not os.path.exists(path)
