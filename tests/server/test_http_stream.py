"""http/request with streamResponse: the body follows in notifications."""

from __future__ import annotations

import asyncio

import pytest

from tests.requirements import requirement
from tests.support.http_target import Line, Received, hello, target
from tests.support.http_wire import ask, body_of, deltas, next_delta, request_params
from tests.support.local import connected, wire_with

MIB = 1024 * 1024


async def say_parts(request: Received, line: Line) -> None:
    await line.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    for part in (b"one", b"two"):
        await line.say(b"%x\r\n%b\r\n" % (len(part), part))
    await line.say("0\r\n\r\n")


@requirement("http/stream:deltas")
async def test_the_result_precedes_numbered_deltas(wire):
    async with target(say_parts) as origin:
        await wire.request("http/request", request_params(origin.url, streamResponse=True))
        answer = await wire.receive()
        found = await deltas(wire)
    assert answer["result"]["bodyBase64"] == ""
    assert answer["result"]["status"] == 200
    assert [delta["seq"] for delta in found] == list(range(1, len(found) + 1))
    assert body_of(found) == b"onetwo"
    assert found[-1] == {
        "requestId": "r",
        "seq": len(found),
        "deltaBase64": "",
        "done": True,
        "error": None,
    }
    assert all(not delta["done"] and delta["error"] is None for delta in found[:-1])


@requirement("http/stream:empty")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_empty_body_is_one_delta(wire, method):
    async def behave(request: Received, line: Line) -> None:
        length = 5 if request.line.startswith("HEAD") else 0
        await line.say(f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")

    async with target(behave) as origin:
        await ask(wire, origin.url, method, streamResponse=True)
        (last,) = await deltas(wire)
    assert (last["seq"], last["done"], last["deltaBase64"]) == (1, True, "")


@requirement("http/stream:delta-size")
async def test_no_delta_is_too_large():
    async def behave(request: Received, line: Line) -> None:
        await line.answer(200, b"x" * MIB)

    async with wire_with(http_delta_bytes=1000) as wire, target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        found = await deltas(wire)
    assert len(body_of(found)) == MIB
    assert max(len(body_of([delta])) for delta in found) == 1000


@requirement("http/stream:at-once")
async def test_what_arrives_is_forwarded_at_once(wire):
    heard = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none")
        await heard.wait()
        await line.say("two")

    async with target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        assert body_of([await next_delta(wire)]) == b"one"
        heard.set()
        assert body_of(await deltas(wire)) == b"two"


@requirement("http/stream:failure")
async def test_a_body_that_breaks_off_ends_with_an_error(wire):
    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
        line.cut()

    async with target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        found = await deltas(wire)
    assert body_of(found) == b"abc"
    assert (found[-1]["done"], found[-1]["error"]) == (True, "error decoding response body")


@requirement("http/stream:failure")
async def test_a_body_that_turns_into_nonsense_ends_with_an_error(wire):
    heard = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await heard.wait()
        await line.say("nonsense\r\n")
        await line.hung_up()

    async with target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        assert body_of([await next_delta(wire)]) == b"abc"
        heard.set()
        assert (await deltas(wire))[-1]["error"] == "error decoding response body"


@requirement("http/stream:failure")
async def test_a_timeout_covers_the_streamed_body(wire):
    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
        await line.hung_up()

    async with target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True, timeoutMs=600)
        assert (await deltas(wire))[-1]["error"] == "error decoding response body"


@requirement("http/stream:failure")
async def test_a_failure_before_the_headers_frees_the_id(wire):
    for _ in range(2):
        assert (await ask(wire, "http://127.0.0.1:1/", streamResponse=True))["code"] == -32603
    assert not wire.unread


@requirement("http/stream:duplicate-id")
async def test_an_id_is_taken_until_the_last_delta(server, wire):
    release = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")
        await release.wait()
        await line.say("end")

    async with target(behave) as origin, target(hello) as other, connected(server.url) as second:
        await ask(wire, origin.url, streamResponse=True)
        refused = await ask(wire, "nonsense", streamResponse=True)
        assert refused == {
            "code": -32602,
            "message": "http/request streamResponse requestId `r` is already active",
        }
        assert (await ask(wire, other.url))["status"] == 200
        assert (await ask(second, other.url, streamResponse=True))["status"] == 200
        release.set()
        assert body_of(await deltas(wire)) == b"end"
        assert (await ask(wire, other.url, streamResponse=True))["status"] == 200
        await deltas(wire)


@requirement("http/dispatch:streams-do-not-block")
async def test_streams_interleave_with_other_requests(wire):
    release = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")
        await release.wait()
        await line.say(request.path.encode()[1:])

    ids = [f"s{number:02}" for number in range(40)]
    async with target(behave) as origin:
        for name in ids:
            await ask(wire, f"{origin.url}/{name}", requestId=name, streamResponse=True)
        assert await wire.call("environment/status") == {"status": "ready"}
        release.set()
        for name in ids:
            assert body_of(await deltas(wire, name)) == name.encode()


@requirement("http/stream:limit")
async def test_streams_of_a_connection_are_bounded():
    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")
        await line.hung_up()

    async with wire_with(http_streams=1) as wire, target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        refused = await ask(wire, origin.url, requestId="other", streamResponse=True)
        assert refused["code"] == -32600


@requirement("http/stream:disconnect")
async def test_a_stream_ends_with_its_connection(server):
    gone = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
        await line.hung_up()
        gone.set()

    async with target(behave) as origin:
        async with connected(server.url) as wire:
            await ask(wire, origin.url, streamResponse=True)
            await next_delta(wire)
            wire.cut()
        async with asyncio.timeout(60):
            await gone.wait()


@requirement("http/stream:backpressure")
async def test_a_target_is_not_read_while_the_client_does_not_read(wire):
    sent = 0
    stuck = asyncio.Event()
    total = 64 * MIB

    async def behave(request: Received, line: Line) -> None:
        nonlocal sent
        await line.say(f"HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n")
        line.writer.transport.set_write_buffer_limits(0)
        while sent < total:
            line.writer.write(b"x" * MIB)
            try:
                async with asyncio.timeout(0.5):
                    await line.writer.drain()
            except TimeoutError:
                stuck.set()
                await line.writer.drain()
            sent += MIB

    async with target(behave) as origin:
        await ask(wire, origin.url, streamResponse=True)
        wire.socket.transport.pause_reading()
        async with asyncio.timeout(60):
            await stuck.wait()
        assert sent < total / 2
        wire.socket.transport.resume_reading()
        assert len(body_of(await deltas(wire))) == total
