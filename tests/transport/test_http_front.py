"""The HTTP on a WebSocket port: the table of answers, and heads that are barely HTTP."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport.http_front import HttpAnswer, encode_answer, judge, parse_head
from tests.requirements import requirement
from tests.support.local import server_with
from tests.support.raw import ACCEPT, TEXT, UPGRADE, RawSocket, frame, http, request_head

# Everything here is the same over TLS.
pytestmark = [
    pytest.mark.usefixtures("carrier"),
    pytest.mark.parametrize("carrier", ["plain", "tls"], indirect=True),
]

NO_UPGRADE = b"Connection header did not include 'upgrade'"
NO_WEBSOCKET = b"`Upgrade` header did not include 'websocket'"
NO_VERSION = b"`Sec-WebSocket-Version` header did not include '13'"
NO_KEY = b"`Sec-WebSocket-Key` header missing"
NOT_GET = b"Request method must be `GET`"
NO_STATE = b"WebSocket request couldn't be upgraded since no upgrade state was present"


def upgrade(**changes: str | None) -> dict[str, str]:
    """The headers of an upgrade with some changed, or with None left out."""
    headers: dict[str, str | None] = {
        **UPGRADE,
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return {name: value for name, value in headers.items() if value is not None}


# method, target, headers, status, body
TABLE = [
    ("GET", "/readyz", {}, 200, b""),
    ("HEAD", "/readyz", {}, 200, b""),
    ("GET", "/readyz?x=1", {}, 200, b""),
    ("GET", "/readyz", UPGRADE, 200, b""),
    ("POST", "/readyz", {}, 405, b""),
    ("OPTIONS", "/readyz", {}, 405, b""),
    ("get", "/readyz", {}, 405, b""),
    ("GET", "/metrics", {}, 404, b""),
    ("GET", "/", {}, 400, NO_UPGRADE),
    ("GET", "/", UPGRADE, 101, b""),
    ("GET", "/?token=x", UPGRADE, 101, b""),
    ("POST", "/", UPGRADE, 405, NOT_GET),
    ("POST", "/", {}, 405, NOT_GET),
    ("HEAD", "/", UPGRADE, 405, b""),
    ("DELETE", "/", {}, 405, NOT_GET),
    ("GET", "/", upgrade(Connection=None), 400, NO_UPGRADE),
    ("GET", "/", upgrade(Connection="keep-alive"), 400, NO_UPGRADE),
    ("GET", "/", upgrade(Connection="keep-alive, UPGRADE"), 101, b""),
    ("GET", "/", upgrade(Upgrade=None), 400, NO_WEBSOCKET),
    ("GET", "/", upgrade(Upgrade="h2c"), 400, NO_WEBSOCKET),
    ("GET", "/", upgrade(Upgrade="WebSocket"), 101, b""),
    ("GET", "/", upgrade(Sec_WebSocket_Version=None), 400, NO_VERSION),
    ("GET", "/", upgrade(Sec_WebSocket_Version="12"), 400, NO_VERSION),
    ("GET", "/", upgrade(Sec_WebSocket_Version="13, 8"), 400, NO_VERSION),
    ("GET", "/", upgrade(Sec_WebSocket_Key=None), 400, NO_KEY),
    ("GET", "/", upgrade(Host=None), 101, b""),
    ("GET", "/", upgrade(Host="evil.example"), 101, b""),
    ("GET", "/healthz", {}, 404, b""),
    ("GET", "/health", UPGRADE, 404, b""),
    ("GET", "/readyz/", {}, 404, b""),
    ("GET", "/%72eadyz", {}, 404, b""),
    ("GET", "//", UPGRADE, 404, b""),
    ("GET", "/x/", UPGRADE, 404, b""),
    ("POST", "/x", {}, 404, b""),
    ("OPTIONS", "*", {}, 404, b""),
    ("CONNECT", "example:1", {}, 404, b""),
    ("GET", "http://any.host/readyz", {}, 200, b""),
    ("GET", "http://any.host", UPGRADE, 101, b""),
]


@pytest.mark.parametrize(("method", "target", "headers", "status", "body"), TABLE)
@requirement("http:table")
async def test_the_table_of_answers(server, method, target, headers, status, body):
    head = request_head(method, target, headers)
    answer = await http(server.url, head, without_body=method == "HEAD")
    assert (answer.status, answer.body) == (status, body)
    if status == 405 and "readyz" in target:
        assert answer.headers["allow"] == "GET,HEAD"
    if status == 101:
        assert answer.headers["sec-websocket-accept"] == ACCEPT
    elif method == "HEAD":
        assert answer.headers["content-length"] == ("28" if status == 405 else "0")


@pytest.mark.parametrize("value", ["", "null", "http://localhost", "https://evil.example"])
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/"), ("GET", "/readyz"), ("POST", "/readyz"), ("GET", "/x"), ("POST", "/")],
)
@requirement("http:origin-first")
async def test_an_origin_is_refused_before_everything_else(server, value, method, target):
    for name in ("Origin", "ORIGIN", "origin"):
        head = request_head(method, target, {**UPGRADE, name: value})
        answer = await http(server.url, head)
        assert (answer.status, answer.body) == (403, b"")


@pytest.mark.parametrize(
    ("headers", "status", "body"),
    [
        (UPGRADE, 426, NO_STATE),
        (upgrade(Sec_WebSocket_Key=None), 400, NO_KEY),
        ({}, 400, NO_UPGRADE),
    ],
)
@requirement("http:http-1.0")
async def test_http_1_0_cannot_be_upgraded(server, headers, status, body):
    answer = await http(server.url, request_head("GET", "/", headers, version="HTTP/1.0"))
    assert (answer.status, answer.body) == (status, body)
    ready = await http(server.url, request_head("GET", "/readyz", {}, version="HTTP/1.0"))
    assert ready.status == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /readyz HTTP/1.1\n\n", 200),
        (b"GET /readyz HTTP/1.1\na: b\r\n\n", 200),
        (b"\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n", 200),
        (b"GET /readyz HTTP/1.1\r\na:b\r\nc:\r\nd: \t e \t\r\n\r\n", 200),
        (b"GET /readyz HTTP/1.1\r\na: \xff\xe9\r\n\r\n", 200),
        (b"GET /readyz HTTP/1.2\r\n\r\n", 400),
        (b"GET /readyz HTTP/2.0\r\n\r\n", 400),
        (b"GET /readyz\r\n\r\n", 400),
        (b"GET  /readyz HTTP/1.1\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1 \r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\n: no name\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\nOrigin : x\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\na: b\r\n folded\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\na(b: x\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\na: \x00\r\n\r\n", 400),
        (b"GET /readyz HTTP/1.1\r\na: b\rc\r\n\r\n", 400),
    ],
)
@requirement("http:heads")
async def test_heads_that_are_barely_http(server, head, status):
    assert (await http(server.url, head)).status == status


@requirement("http:repeated-headers")
async def test_of_a_repeated_header_the_first_counts(server):
    head = request_head("GET", "/", UPGRADE)
    first = head.replace(b"Connection: Upgrade", b"Connection: close\r\nConnection: Upgrade")
    assert (await http(server.url, first)).status == 400
    second = head.replace(b"Connection: Upgrade", b"Connection: Upgrade\r\nConnection: close")
    assert (await http(server.url, second)).status == 101


@pytest.mark.parametrize("is_slow", [False, True])
@requirement("http:head-limit")
async def test_a_head_has_a_limit_however_it_arrives(server, is_slow):
    limit = server.core.limits.http_head_bytes
    plain = request_head("GET", "/readyz", {"a": ""})
    for size, status in ((limit, 200), (limit + 1, 431)):
        head = request_head("GET", "/readyz", {"a": "x" * (size - len(plain))})
        assert len(head) == size
        async with RawSocket(server.url) as sock:
            if is_slow:
                await sock.send(head[:-1])
                # One more round trip separates the two parts.
                await http(server.url, plain)
                await sock.send(head[-1:])
            else:
                await sock.send(head)
            assert (await sock.answer()).status == status


@requirement("http:head-limit")
async def test_a_head_without_an_end_is_refused(server):
    async with RawSocket(server.url) as sock:
        await sock.send(b"GET / HTTP/1.1\r\na: " + b"x" * server.core.limits.http_head_bytes)
        assert (await sock.answer()).status == 431


@requirement("http:head-timeout")
async def test_a_connection_that_says_nothing_is_dropped():
    async with server_with(http_head_timeout=0.05) as server:
        for data in (b"", b"GET / HTT"):
            async with RawSocket(server.url) as sock:
                await sock.send(data)
                assert await sock.at_end() == b""


@requirement("http:frames-behind-the-upgrade")
async def test_frames_may_follow_the_upgrade_at_once(server):
    async with RawSocket(server.url) as sock:
        messages = frame(TEXT, b'{"id":1,"method":"x"}') + frame(TEXT, b'{"id":2,"method":"x"}')
        await sock.send(request_head("GET", "/", UPGRADE) + messages)
        assert (await sock.answer()).status == 101
        assert [(await sock.receive_json())["id"] for _ in range(2)] == [1, 2]


@requirement("http:one-answer")
async def test_a_refused_connection_is_closed_after_its_answer(server):
    async with RawSocket(server.url) as sock:
        # A second request, and a body of the first, are not read.
        await sock.send(request_head("POST", "/readyz", {"Content-Length": "5"}) + b"hello")
        answer = await sock.answer()
        assert (answer.status, answer.headers["connection"]) == (405, "close")
        assert await sock.at_end() == b""


# Authentication.

TOKEN = "a-capability-token"


@pytest.fixture
async def guarded(no_leaks):
    """A server that requires a token."""
    authenticator = CapabilityToken(hashlib.sha256(TOKEN.encode()).digest())
    async with serve(authenticator=authenticator) as server:
        yield server


@pytest.mark.parametrize(
    ("authorization", "status", "body"),
    [
        (f"Bearer {TOKEN}", 101, b""),
        (f"bEaReR   {TOKEN}  ", 101, b""),
        (None, 401, b"missing websocket bearer token"),
        ("", 401, b"invalid authorization header"),
        ("Bearer", 401, b"invalid authorization header"),
        ("Bearer ", 401, b"invalid authorization header"),
        (f"Basic {TOKEN}", 401, b"invalid authorization header"),
        (f"Bearer\t{TOKEN}", 401, b"invalid authorization header"),
        ("Bearer wrong", 401, b"invalid websocket bearer token"),
    ],
)
@requirement("http:authorization")
async def test_an_upgrade_needs_the_token(guarded, authorization, status, body):
    headers = upgrade(Authorization=authorization)
    answer = await http(guarded.url, request_head("GET", "/", headers))
    assert (answer.status, answer.body) == (status, body)
    assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize(
    ("method", "target", "headers", "status"),
    [
        ("GET", "/readyz", {}, 200),
        ("GET", "/x", UPGRADE, 404),
        ("POST", "/", UPGRADE, 405),
        ("GET", "/", {}, 400),
        ("GET", "/", upgrade(Sec_WebSocket_Key=None), 400),
        ("GET", "/", upgrade(Origin="x"), 403),
        ("GET", f"/?token={TOKEN}", UPGRADE, 401),
    ],
)
@requirement("http:authorization-order")
async def test_everything_else_is_judged_before_the_token(guarded, method, target, headers, status):
    assert (await http(guarded.url, request_head(method, target, headers))).status == status


@requirement("http:authorization-order")
async def test_http_1_0_is_refused_before_the_token(guarded):
    head = request_head("GET", "/", UPGRADE, version="HTTP/1.0")
    assert (await http(guarded.url, head)).status == 426


@requirement("http:authorization")
async def test_of_several_tokens_the_first_counts(guarded):
    right, wrong = f"Authorization: Bearer {TOKEN}", "Authorization: Bearer wrong"
    for lines, status in (((right, wrong), 101), ((wrong, right), 401)):
        head = request_head("GET", "/", UPGRADE)
        both = "\r\n".join(lines).encode()
        answer = await http(guarded.url, head.replace(b"Host: localhost", both))
        assert answer.status == status


# Pure.


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_none(data):
    head = parse_head(data)
    if head is not None:
        answer = judge(head, None)
        assert answer is None or answer.status in {200, 400, 403, 404, 405, 426}


def test_an_answer_to_head_has_the_length_of_its_body_and_no_body():
    data = encode_answer(HttpAnswer(400, "é"), without_body=True)
    assert b"Content-Length: 2\r\n" in data
    assert data.endswith(b"\r\n\r\n")
    assert encode_answer(HttpAnswer(400, "é"), without_body=False).endswith(b"\r\n\r\n\xc3\xa9")
