"""client.http: requests that the server makes."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from exec_server.client.flow.flow_control import FlowControl
from exec_server.client.http.remote_http import FromEnvironment, HttpHeaders
from exec_server.client.http.response_body import Budget, HttpBody
from exec_server.client.httpx_transport import ExecutorTransport
from exec_server.client_urls import connect
from exec_server.errors import (
    ConnectionClosed,
    HttpBodyFailed,
    InternalError,
    InvalidParams,
)
from exec_server.limits import Limits
from exec_server.protocol.base64 import Blob
from exec_server.protocol.http import BodyDelta, Header
from tests.requirements import requirement
from tests.support.fake_server import Talk, fake_server
from tests.support.fault_proxy import fault_proxy
from tests.support.http_target import Line, Received, hello, target

pytestmark = pytest.mark.usefixtures("no_leaks")

MIB = 1024 * 1024
QUICK = Limits(recovery_pause=0.01)


@requirement("http/client:request")
async def test_a_request_has_a_typed_answer(client):
    async with target(hello) as origin:
        answer = await client.http.post(origin.url, headers={"X-Y": "z"}, content=b"abc")
        (request,) = origin.received
    assert (answer.status, answer.content, answer.text) == (200, b"hello", "hello")
    assert answer.headers.get_all("X-A") == ["1", "3"]
    assert answer.headers["x-b"] == "2"
    assert "nope" not in answer.headers
    assert (request.line, request.body) == ("POST / HTTP/1.1", b"abc")
    assert request.header("x-y") == "z"


@requirement("http/client:request")
async def test_headers_may_repeat_and_redirects_may_be_left_alone(client):
    async def behave(request: Received, line: Line) -> None:
        await line.answer(302, b'{"a": 1}', "Location: /x")

    async with target(behave) as origin:
        headers = [("X-A", "1"), ("X-A", "2")]
        answer = await client.http.get(origin.url, headers=headers, follow_redirects=False)
        assert (answer.status, answer.json()) == (302, {"a": 1})
        assert [v for k, v in origin.received[0].headers if k == "x-a"] == ["1", "2"]


@requirement("http/client:request")
async def test_a_value_of_the_servers_environment_is_never_known_here(client, monkeypatch):
    monkeypatch.setenv("PROBE_TOKEN", "not seen: the server has started before")
    with pytest.raises(InvalidParams, match="requires executor environment variable PROBE_TOKEN"):
        await client.http.get(
            "http://127.0.0.1:1/", headers={"X": FromEnvironment("PROBE_TOKEN", "Bearer ")}
        )


@requirement("http/client:request")
async def test_a_timeout_is_kept_by_the_server(client):
    async def behave(request: Received, line: Line) -> None:
        await line.hung_up()

    async with target(behave) as origin:
        with pytest.raises(InternalError, match="error sending request"):
            await client.http.get(origin.url, timeout=0.2)


def test_values_of_headers_do_not_show():
    assert "secret" not in repr(HttpHeaders([Header("set-cookie", "secret")]))


@requirement("http/client:stream")
async def test_a_body_is_read_as_it_comes(client):
    heard = asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none")
        await heard.wait()
        await line.say("two")

    async with target(behave) as origin, client.http.stream("GET", origin.url) as answer:
        pieces = aiter(answer)
        assert (answer.status, await anext(pieces)) == (200, b"one")
        # Others are not held up by it.
        assert await client.environment_status() == "ready"
        heard.set()
        assert [piece async for piece in pieces] == [b"two"]


@requirement("http/client:stream")
async def test_a_large_body_arrives_whole_and_can_be_left(client):
    content = bytes(range(256)) * 8 * 4096

    async def behave(request: Received, line: Line) -> None:
        await line.answer(200, content)

    async with target(behave) as origin:
        async with client.http.stream("GET", origin.url) as answer:
            assert await anext(aiter(answer))
        async with client.http.stream("GET", origin.url) as answer:
            assert await answer.read() == content
        assert client._session.bodies._budget.used == 0


@requirement("http/client:stream")
async def test_a_body_that_breaks_off_says_so(client):
    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
        line.cut()

    async with target(behave) as origin, client.http.stream("GET", origin.url) as answer:
        pieces = aiter(answer)
        assert await anext(pieces) == b"abc"
        with pytest.raises(HttpBodyFailed, match="error decoding response body"):
            await anext(pieces)


@requirement("http/client:lost", "http/client:stream")
async def test_a_lost_connection_fails_bodies_and_the_next_goes_on(server):
    async def behave(request: Received, line: Line) -> None:
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
        await line.hung_up()

    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=QUICK) as client:
        async with target(behave) as origin, client.http.stream("GET", origin.url) as answer:
            pieces = aiter(answer)
            assert await anext(pieces) == b"abc"
            proxy.cut()
            with pytest.raises(ConnectionClosed, match="disconnected"):
                await anext(pieces)
            assert len(origin.received) == 1
        async with target(hello) as origin, client.http.stream("GET", origin.url) as answer:
            assert await answer.read() == b"hello"
        assert client._session.bodies._last_id == 2


# What a server may get wrong.


def delta(seq: int, data: bytes = b"", request_id: str = "http-1", **params: Any) -> dict[str, Any]:
    chunk = base64.b64encode(data).decode()
    return {
        "method": "http/request/bodyDelta",
        "params": {
            "requestId": request_id,
            "seq": seq,
            "deltaBase64": chunk,
            "done": False,
            "error": None,
            **params,
        },
    }


async def played(*messages: dict[str, Any]) -> bytes:
    """The body of which a server says *messages*."""

    async def script(talk: Talk) -> None:
        await talk.shake_hands()
        request = await talk.expect("http/request")
        assert request["params"]["requestId"] == "http-1"
        await talk.answer(request, {"status": 200, "headers": [], "bodyBase64": ""})
        for message in messages:
            await talk.send(message)
        await talk.gone()

    async with fake_server(script) as url, connect(url, reconnect=False) as client:
        async with client.http.stream("GET", "http://h/") as answer:
            async with asyncio.timeout(60):
                return await answer.read()


@requirement("http/client:sequence")
async def test_the_last_delta_may_carry_bytes_and_strangers_are_ignored():
    strange = delta(7, b"no", "http-9")
    assert await played(delta(1, b"a"), strange, delta(2, b"b", done=True)) == b"ab"


@requirement("http/client:sequence")
@pytest.mark.parametrize("seq", [1, 3])
async def test_a_gap_or_a_repetition_fails_the_stream(seq):
    with pytest.raises(HttpBodyFailed, match=f"expected delta 2, got {seq}"):
        await played(delta(1, b"a"), delta(seq, b"b"))


@requirement("http/client:sequence")
async def test_a_delta_that_is_too_large_ends_the_connection():
    with pytest.raises(ConnectionClosed):
        await played(delta(1, b"x" * (MIB + 1)))


@requirement("http/client:bounded")
async def test_a_body_that_nobody_takes_fails_alone(client):
    budget = Budget(1000)
    settled: list[HttpBody] = []

    def body(name: str) -> HttpBody:
        flow = FlowControl(client._session, limits=Limits())
        return HttpBody(name, budget=budget, flow=flow, behind_bytes=MIB, on_settled=settled.append)

    first, second = body("a"), body("b")
    first.receive(BodyDelta("a", 1, Blob(b"x" * 600)))
    second.receive(BodyDelta("b", 1, Blob(b"x" * 600)))
    assert settled == [second]
    with pytest.raises(HttpBodyFailed, match="not taken fast enough"):
        await second.take()
    first.receive(BodyDelta("a", 2, Blob(b""), done=True))
    assert [await first.take(), await first.take()] == [b"x" * 600, b""]
    assert budget.used == 0


@requirement("http/client:backpressure")
async def test_whoever_takes_nothing_holds_up_the_target(client):
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

    async with target(behave) as origin, client.http.stream("GET", origin.url) as answer:
        async with asyncio.timeout(30):
            await stuck.wait()
            assert sent < total / 2
            size = 0
            async for piece in answer:
                size += len(piece)
    assert size == total


# httpx.


@requirement("http/client:httpx")
async def test_httpx_sends_its_requests_from_the_executor(client):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/start":
            await line.answer(307, b"", "Location: /end", "Set-Cookie: a=b")
        else:
            await line.answer(200, request.body, "X-A: 1")

    async with (
        target(behave) as origin,
        httpx.AsyncClient(transport=ExecutorTransport(client), follow_redirects=True) as http,
    ):
        answer = await http.post(f"{origin.url}/start", json={"a": "é"})
        first, second = origin.received
    assert answer.json() == {"a": "é"}
    assert answer.headers["x-a"] == "1"
    assert (first.path, second.path) == ("/start", "/end")
    assert second.header("cookie") == "a=b"


@requirement("http/client:httpx")
async def test_httpx_streams_and_decodes(client):
    import gzip

    async def behave(request: Received, line: Line) -> None:
        await line.answer(200, gzip.compress(b"text"), "Content-Encoding: gzip")

    async with target(behave) as origin:
        async with httpx.AsyncClient(transport=ExecutorTransport(client)) as http:
            async with http.stream("GET", origin.url) as answer:
                assert b"".join([piece async for piece in answer.aiter_bytes()]) == b"text"


@requirement("http/client:httpx")
async def test_httpx_meets_the_errors_that_it_knows(client):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/short":
            await line.say("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc")
            line.cut()
        await line.hung_up()

    async with target(behave) as origin:
        async with httpx.AsyncClient(transport=ExecutorTransport(client)) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.get(f"{origin.url}/slow", timeout=0.1)
            with pytest.raises(httpx.NetworkError):
                await http.get("http://127.0.0.1:1/")
            with pytest.raises(httpx.NetworkError):
                await http.get(f"{origin.url}/short")
