"""http/request: the request that reaches the target, and the answer in one piece."""

from __future__ import annotations

import asyncio

import pytest

from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.http_target import Line, Received, hello, target
from tests.support.http_wire import ask, body, encoded, request_params
from tests.support.local import connected, wire_with
from tests.support.wire import Wire

FAILED = "http/request failed: error sending request for url"
BROKEN_BODY = "failed to read http/request response body: error decoding response body"


@requirement("http/request:as-asked")
async def test_nothing_is_added_but_accept_and_host(wire):
    async with target(hello) as origin:
        await ask(wire, f"{origin.url}/x?q=1#frag", "get")
        (request,) = origin.received
    assert request.line == "get /x?q=1 HTTP/1.1"
    assert sorted(request.headers) == [("accept", "*/*"), ("host", f"127.0.0.1:{origin.port}")]


@requirement("http/request:as-asked")
async def test_a_post_without_a_body_has_no_length(wire):
    async with target(hello) as origin:
        await ask(wire, origin.url, "POST")
        assert origin.received[0].header("content-length") is None


@requirement("http/request:as-asked")
async def test_headers_of_the_caller_are_honoured(wire):
    given = {"host": "other", "accept": "a/b", "user-agent": "me", "connection": "close"}
    headers = [{"name": name.title(), "value": value} for name, value in given.items()]
    async with target(hello) as origin:
        await ask(wire, origin.url, headers=headers)
        assert dict(origin.received[0].headers) == given


@requirement("http/request:body")
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_body_goes_with_any_method(wire, method):
    async with target(hello) as origin:
        await ask(wire, origin.url, method, bodyBase64=encoded(b"abc"))
        (request,) = origin.received
    assert (request.body, request.header("content-length")) == (b"abc", "3")
    assert request.header("content-type") is None


@requirement("http/request:body")
async def test_a_body_goes_in_chunks_when_asked(wire):
    headers = [{"name": "Transfer-Encoding", "value": "chunked"}]
    async with target(hello) as origin:
        await ask(wire, origin.url, "POST", bodyBase64=encoded(b"abc"), headers=headers)
        (request,) = origin.received
    assert (request.body, request.header("content-length")) == (b"abc", None)


@requirement("http/answer:headers")
async def test_answered_headers_are_lower_case_grouped_and_visible(wire):
    async def behave(request: Received, line: Line) -> None:
        await line.say(
            b"HTTP/1.1 200 OK\r\nX-A: 1\r\nB: 2\r\nX-Bin: \xff\r\nx-a: 3\r\n"
            b"Content-Length: 0\r\n\r\n"
        )

    async with target(behave) as origin:
        result = await ask(wire, origin.url)
    pairs = [(header["name"], header["value"]) for header in result["headers"]]
    assert pairs == [("x-a", "1"), ("x-a", "3"), ("b", "2"), ("content-length", "0")]


@requirement("http/answer:undecoded")
async def test_a_content_encoding_is_passed_through(wire):
    async def behave(request: Received, line: Line) -> None:
        await line.answer(200, b"\x1f\x8b not really", "Content-Encoding: gzip")

    async with target(behave) as origin:
        assert body(await ask(wire, origin.url)) == b"\x1f\x8b not really"


@requirement("http/answer:statuses")
@pytest.mark.parametrize("status", [204, 304, 404, 500, 599])
async def test_every_status_is_a_result(wire, status):
    async def behave(request: Received, line: Line) -> None:
        await line.say(f"HTTP/1.1 {status} X\r\n{'content-length: 0' * (status > 400)}\r\n\r\n")
        line.cut()

    async with target(behave) as origin:
        assert (await ask(wire, origin.url))["status"] == status


@requirement("http/answer:statuses")
async def test_interim_answers_are_swallowed_and_101_has_no_body(wire):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/101":
            await line.say("HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nraw")
        else:
            await line.say("HTTP/1.1 103 Early\r\nlink: x\r\n\r\n")
            await line.answer(200, b"ok")

    async with target(behave) as origin:
        assert body(await ask(wire, origin.url)) == b"ok"
        upgraded = await ask(wire, f"{origin.url}/101")
    assert (upgraded["status"], upgraded["bodyBase64"]) == (101, "")


@requirement("http/request:failures")
async def test_what_does_not_speak_http_fails_with_the_final_url(wire):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/start":
            await line.answer(302, b"", "Location: /end?x")
        else:
            await line.say("nonsense\r\n\r\n")
            line.cut()

    async with target(behave) as origin:
        error = await ask(wire, f"{origin.url}/start")
        url = origin.url
    assert error == {"code": -32603, "message": f"{FAILED} ({url}/end?x)"}
    # Nothing listens on this port any more.
    assert (await ask(wire, url))["message"] == f"{FAILED} ({url}/)"


@requirement("http/answer:broken-body")
@pytest.mark.parametrize(
    "head", ["content-length: 10\r\n\r\nabc", "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]
)
async def test_a_body_that_breaks_off_is_an_error(wire, head):
    async def behave(request: Received, line: Line) -> None:
        await line.say(f"HTTP/1.1 200 OK\r\n{head}")
        line.cut()

    async with target(behave) as origin:
        assert await ask(wire, origin.url) == {"code": -32603, "message": BROKEN_BODY}


@requirement("http/request:body-limit")
async def test_a_body_that_is_too_large_is_an_error():
    async def behave(request: Received, line: Line) -> None:
        await line.answer(200, b"x" * 11)

    async with wire_with(http_body_bytes=10) as wire, target(behave) as origin:
        assert "more than 10 bytes" in (await ask(wire, origin.url))["message"]


@requirement("http/request:timeout")
async def test_a_timeout_covers_the_wait_for_headers_and_the_body(wire):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/body":
            await line.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
        await line.hung_up()

    async with target(behave) as origin:
        waited = await ask(wire, f"{origin.url}/head", timeoutMs=400)
        # Long enough for a loaded machine to get the head, and too short for the body.
        read = await ask(wire, f"{origin.url}/body", timeoutMs=2000)
        assert waited["message"] == f"{FAILED} ({origin.url}/head)"
        assert read["message"] == BROKEN_BODY
        assert len(origin.received) == 2


@requirement("http/request:timeout")
async def test_a_timeout_of_nothing_sends_nothing(wire):
    async with target(hello) as origin:
        error = await ask(wire, origin.url, timeoutMs=0)
        assert error["message"] == "http/request failed: route-aware request timed out"
        assert not origin.received


@requirement("http/request:timeout")
async def test_the_longest_timeout_is_accepted(wire):
    async with target(hello) as origin:
        assert (await ask(wire, origin.url, timeoutMs=2**64 - 1))["status"] == 200


@requirement("http/request:pooled")
async def test_connections_are_reused_by_all_clients(server, wire):
    async with target(hello) as origin, connected(server.url) as other:
        for client in (wire, other, wire):
            await ask(client, origin.url)
        assert (len(origin.received), origin.connections) == (3, 1)


@requirement("http/request:not-repeated")
async def test_a_request_on_a_kept_connection_that_is_dead_is_not_repeated(wire):
    async def behave(request: Received, line: Line) -> None:
        if request.path == "/drop":
            line.cut()
        else:
            await hello(request, line)

    async with target(behave) as origin:
        await ask(wire, origin.url)
        assert (await ask(wire, f"{origin.url}/drop"))["code"] == -32603
        assert [request.path for request in origin.received] == ["/", "/drop"]


@requirement("http/redirect:limit", "http/redirect:stop")
async def test_ten_redirects_are_followed(wire):
    async def behave(request: Received, line: Line) -> None:
        hop = int(request.path[1:])
        if hop == 0:
            await line.answer(200, b"end")
        else:
            await line.answer(302, b"", f"Location: /{hop - 1}")

    async with target(behave) as origin:
        assert body(await ask(wire, f"{origin.url}/10")) == b"end"
        assert len(origin.take()) == 11
        error = await ask(wire, f"{origin.url}/11")
        assert error == {"code": -32603, "message": "http/request failed: too many redirects"}
        assert len(origin.take()) == 11
        stopped = await ask(wire, f"{origin.url}/10", redirectPolicy="stop")
        assert (stopped["status"], len(origin.take())) == (302, 1)


@requirement("http/request:order-of-checks")
async def test_params_are_judged_before_the_handshake(server):
    async with Wire(server.url) as wire:
        assert (await wire.error("http/request", {}))["code"] == -32602
        error = await wire.error("http/request", request_params("nonsense"))
        assert error == {
            "code": -32600,
            "message": "client must call initialize before using http methods",
        }


@requirement("http/request:order-of-checks")
@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": None},
        {"redirectPolicy": None},
        {"redirectPolicy": "x"},
        {"streamResponse": None},
        {"timeoutMs": -1},
        {"timeoutMs": 1.5},
        {"timeoutMs": 2**64},
        {"bodyBase64": "!"},
        {"headers": [{"name": "x"}]},
        {"requestId": None},
    ],
)
async def test_params_of_the_wrong_shape_are_refused(wire, wrong):
    assert (await ask(wire, "http://127.0.0.1:1/", **wrong))["code"] == -32602


@requirement("http/env:value")
async def test_a_header_comes_from_the_servers_environment(monkeypatch):
    monkeypatch.setenv("PROBE_TOKEN", "secret")
    headers = [{"name": "X", "value": "Bearer ", "valueEnvVar": "PROBE_TOKEN"}]
    async with wire_with() as wire, target(hello) as origin:
        await ask(wire, origin.url, headers=headers)
        assert origin.received[0].header("x") == "Bearer secret"


@requirement("security/http:environment-stays")
async def test_a_variable_of_the_server_goes_to_one_origin_only(monkeypatch, tmp_path):
    """First to the same origin, then to another port, to another scheme, and back again."""
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("PROBE_TOKEN", "secret")
    monkeypatch.setenv("CODEX_CA_CERTIFICATE", str(certificates.authority))
    headers = [{"name": "X-Key", "value": "Bearer ", "valueEnvVar": "PROBE_TOKEN"}]
    route: dict[str, str] = {}

    async def behave(request: Received, line: Line) -> None:
        if request.path in route:
            await line.answer(307, b"", f"Location: {route[request.path]}")
        else:
            await hello(request, line)

    async with (
        wire_with() as wire,
        target(behave) as first,
        target(behave) as second,
        target(behave, tls=certificates.server) as third,
    ):
        route["/1"] = f"{first.url}/2"
        route["/2"] = f"{second.url}/3"
        route["/3"] = f"{third.url}/4"
        route["/4"] = f"{first.url}/5"
        await ask(wire, f"{first.url}/1", headers=headers)
        seen = {
            request.path: request.header("x-key")
            for origin in (first, second, third)
            for request in origin.received
        }
    token = "Bearer secret"
    assert seen == {"/1": token, "/2": token, "/3": None, "/4": None, "/5": None}


@requirement("http/stream:disconnect")
async def test_a_request_ends_with_its_connection(server):
    seen, gone = asyncio.Event(), asyncio.Event()

    async def behave(request: Received, line: Line) -> None:
        seen.set()
        await line.hung_up()
        gone.set()

    async with target(behave) as origin:
        async with connected(server.url) as wire:
            await wire.request("http/request", request_params(origin.url))
            async with asyncio.timeout(60):
                await seen.wait()
            wire.cut()
        async with asyncio.timeout(60):
            await gone.wait()


# The route to the target.


@requirement("http/proxy:used", "http/proxy:credentials")
async def test_plain_http_goes_to_the_proxy_in_absolute_form(monkeypatch):
    async with target(hello) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:pw@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with wire_with() as wire:
            assert (await ask(wire, "http://nowhere.invalid/x"))["status"] == 200
        (request,) = proxy.received
    assert request.line == "GET http://nowhere.invalid/x HTTP/1.1"
    assert request.header("proxy-authorization") == "Basic dXNlcjpwdw=="
    assert request.header("host") == "nowhere.invalid"


@requirement("http/proxy:used")
async def test_https_goes_through_a_tunnel(monkeypatch, tmp_path):
    certificates = make_certificates(tmp_path)

    async def tunnel(request: Received, line: Line) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", origin.port)
        await line.say("HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(line.reader, writer), _copy(reader, line.writer))

    async with target(hello, tls=certificates.server) as origin, target(tunnel) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://u:p@127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setenv("CODEX_CA_CERTIFICATE", str(certificates.authority))
        async with wire_with() as wire:
            assert body(await ask(wire, f"https://localhost:{origin.port}/x")) == b"hello"
        (connect,) = proxy.received
    assert connect.line == f"CONNECT localhost:{origin.port} HTTP/1.1"
    assert connect.header("proxy-authorization") == "Basic dTpw"
    assert origin.received[0].header("proxy-authorization") is None


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@requirement("http/proxy:used")
async def test_a_proxy_that_does_not_answer_is_not_gone_around(monkeypatch):
    async with target(hello) as origin:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with wire_with() as wire:
            assert (await ask(wire, origin.url))["message"] == f"{FAILED} ({origin.url}/)"
        assert not origin.received


@requirement("http/tls:custom-authority")
@pytest.mark.parametrize("variable", ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"])
async def test_an_authority_of_ones_own_is_trusted(monkeypatch, tmp_path, variable):
    certificates = make_certificates(tmp_path)
    monkeypatch.setenv("CODEX_CA_CERTIFICATE", "")
    monkeypatch.setenv(variable, str(certificates.authority))
    async with wire_with() as wire, target(hello, tls=certificates.server) as origin:
        assert (await ask(wire, origin.url))["status"] == 200


@requirement("http/tls:verified")
async def test_an_unknown_authority_is_refused(wire, tmp_path):
    certificates = make_certificates(tmp_path)
    async with target(hello, tls=certificates.server) as origin:
        assert (await ask(wire, origin.url))["message"] == f"{FAILED} ({origin.url}/)"
        assert not origin.received


@requirement("http/tls:bad-file")
@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_bad_file_of_certificates_fails_http_too(monkeypatch, tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("CODEX_CA_CERTIFICATE", str(path))
    async with wire_with() as wire, target(hello) as origin:
        error = await ask(wire, origin.url)
    verb = "read CA certificate file" if content is None else "load CA certificates from"
    assert error["code"] == -32603
    assert error["message"].startswith(f"http/request failed: Failed to {verb} {path} selected by")
