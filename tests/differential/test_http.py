"""HTTP and authentication beside the reference."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.comparing import Both
from tests.support.raw import UPGRADE, http, request_head
from tests.support.servers import reference_binary, start_reference, start_server

pytestmark = pytest.mark.one_loop

TOKEN = "a-capability-token"
SECRET = b"0123456789abcdef0123456789abcdef"


def upgrade(**changes: str | None) -> dict[str, str]:
    """The headers of an upgrade with some changed, or with None left out."""
    headers: dict[str, str | None] = {
        **UPGRADE,
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return {name: value for name, value in headers.items() if value is not None}


HEADS = {
    "ready": request_head("GET", "/readyz", {}),
    "ready, head": request_head("HEAD", "/readyz", {}),
    "ready, query": request_head("GET", "/readyz?x", {}),
    "ready, post": request_head("POST", "/readyz", {"Content-Length": "0"}),
    "ready, options": request_head("OPTIONS", "/readyz", {}),
    "ready, upgrade": request_head("GET", "/readyz", UPGRADE),
    "ready, slash": request_head("GET", "/readyz/", {}),
    "ready, escaped": request_head("GET", "/%72eadyz", {}),
    "ready, 1.0": request_head("GET", "/readyz", {}, version="HTTP/1.0"),
    "ready, absolute": request_head("GET", "http://h/readyz", {}),
    "plain": request_head("GET", "/", {"Host": "x"}),
    "upgrade": request_head("GET", "/", UPGRADE),
    "query": request_head("GET", "/?a=b", UPGRADE),
    "absolute": request_head("GET", "http://h/", UPGRADE),
    "absolute without a path": request_head("GET", "http://h", UPGRADE),
    "post": request_head("POST", "/", UPGRADE),
    "head": request_head("HEAD", "/", UPGRADE),
    "options": request_head("OPTIONS", "/", {}),
    "unknown method": request_head("FOO", "/", UPGRADE),
    "lower-case method": request_head("get", "/", UPGRADE),
    "asterisk": request_head("OPTIONS", "*", {}),
    "connect": request_head("CONNECT", "x:1", {}),
    "no slash": request_head("GET", "readyz", UPGRADE),
    "health": request_head("GET", "/healthz", {}),
    "two slashes": request_head("GET", "//", UPGRADE),
    "other path": request_head("GET", "/x", UPGRADE),
    "other path, post": request_head("POST", "/x", {}),
    "origin": request_head("GET", "/", upgrade(Origin="http://x")),
    "origin null": request_head("GET", "/readyz", {"Origin": "null"}),
    "origin empty": request_head("GET", "/x", {"ORIGIN": ""}),
    "origin, post": request_head("POST", "/readyz", {"origin": "x"}),
    "no connection": request_head("GET", "/", upgrade(Connection=None)),
    "other connection": request_head("GET", "/", upgrade(Connection="close")),
    "list of connections": request_head("GET", "/", upgrade(Connection="keep-alive, UPGRADE")),
    "no upgrade": request_head("GET", "/", upgrade(Upgrade=None)),
    "other upgrade": request_head("GET", "/", upgrade(Upgrade="h2c")),
    "upgrade in another case": request_head("GET", "/", upgrade(Upgrade="WebSocket")),
    "no version": request_head("GET", "/", upgrade(Sec_WebSocket_Version=None)),
    "other version": request_head("GET", "/", upgrade(Sec_WebSocket_Version="12")),
    "list of versions": request_head("GET", "/", upgrade(Sec_WebSocket_Version="13, 8")),
    "no key": request_head("GET", "/", upgrade(Sec_WebSocket_Key=None)),
    "no host": request_head("GET", "/", upgrade(Host=None)),
    "other host": request_head("GET", "/", upgrade(Host="evil:1")),
    "extensions": request_head(
        "GET",
        "/",
        upgrade(Sec_WebSocket_Extensions="permessage-deflate", Sec_WebSocket_Protocol="a"),
    ),
    "1.0": request_head("GET", "/", UPGRADE, version="HTTP/1.0"),
    "1.0 without a key": request_head(
        "GET", "/", upgrade(Sec_WebSocket_Key=None), version="HTTP/1.0"
    ),
    "1.2": request_head("GET", "/", UPGRADE, version="HTTP/1.2"),
    "2.0": request_head("GET", "/", UPGRADE, version="HTTP/2.0"),
    "0.9": b"GET /readyz\r\n\r\n",
    "bare line feeds": b"GET /readyz HTTP/1.1\na: b\n\n",
    "blank lines first": b"\r\n\r\nGET /readyz HTTP/1.1\r\n\r\n",
    "folded": b"GET /readyz HTTP/1.1\r\na: b\r\n c\r\n\r\n",
    "blank before the colon": b"GET /readyz HTTP/1.1\r\norigin : b\r\n\r\n",
    "no colon": b"GET /readyz HTTP/1.1\r\nabc\r\n\r\n",
    "no name": b"GET /readyz HTTP/1.1\r\n: b\r\n\r\n",
    "bad name": b"GET /readyz HTTP/1.1\r\na(b: x\r\n\r\n",
    "two blanks": b"GET  /readyz HTTP/1.1\r\n\r\n",
    "control character": b"GET /readyz HTTP/1.1\r\na: \x01\r\n\r\n",
    "NUL": b"GET /readyz HTTP/1.1\r\na: \x00\r\n\r\n",
    "other bytes": b"GET /readyz HTTP/1.1\r\na: \xff\r\n\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\r\n\r\n",
    "repeated connection": request_head("GET", "/", UPGRADE).replace(
        b"Connection: Upgrade", b"Connection: close\r\nConnection: Upgrade"
    ),
}

# What is free, and why ours is as it is: status of the reference, status of ours.
DIFFERENT = {
    # RFC 6455 wants a key of 16 bytes.
    "short key": (request_head("GET", "/", upgrade(Sec_WebSocket_Key="xx")), 101, 400),
    # A part of a word is not the word.
    "part of a word": (request_head("GET", "/", upgrade(Connection="xupgradex")), 101, 400),
    # RFC 9110 allows a list.
    "list of upgrades": (request_head("GET", "/", upgrade(Upgrade="h2c, websocket")), 400, 101),
    # Ours grants 16 KiB to a head, the reference 400 KiB.
    "long head": (request_head("GET", "/readyz", {"a": "x" * 20_000}), 200, 431),
}


async def shown(url: str, head: bytes) -> tuple[int, bytes, str | None, str | None]:
    answer = await http(url, head, without_body=head.startswith(b"HEAD"))
    headers = answer.headers
    # The reference sends Allow even with a 403.
    allow = headers.get("allow") if answer.status == 405 else None
    return answer.status, answer.body, allow, headers.get("sec-websocket-accept")


@pytest.mark.parametrize("name", HEADS)
@requirement("http:table", "http:origin-first", "http:heads", "http:http-1.0")
async def test_answers_are_the_same(both, name):
    assert await shown(both.ours, HEADS[name]) == await shown(both.reference, HEADS[name])


@pytest.mark.parametrize("name", DIFFERENT)
@requirement("http:deliberate")
async def test_answers_that_differ_on_purpose(both, name):
    head, theirs, mine = DIFFERENT[name]
    assert (await http(both.reference, head)).status == theirs
    assert (await http(both.ours, head)).status == mine


# Authentication.


def pair(*options: str) -> Iterator[Both]:
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with start_reference(binary, *options) as reference, start_server(*options) as ours:
        yield Both(reference.url, ours.url)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[Both]:
    """Both with a capability token."""
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(f" {TOKEN}\n")
    yield from pair("--ws-auth", "capability-token", "--ws-token-file", str(path))


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> Iterator[Both]:
    """Both with signed tokens."""
    path = tmp_path_factory.mktemp("secret") / "secret"
    path.write_bytes(SECRET)
    options = ("--ws-issuer", "us", "--ws-audience", "you", "--ws-max-clock-skew-seconds", "5")
    yield from pair(
        "--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", str(path), *options
    )


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer   ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}",
        f"bearer {TOKEN}",
        f"BEARER   {TOKEN}  ",
        f"Bearer\t{TOKEN}",
        f"Bearer {TOKEN} x",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        "Bearer \xe9",
    ],
)
@requirement("http:authorization")
async def test_tokens_are_judged_alike(guarded, authorization):
    head = request_head("GET", "/", upgrade(Authorization=authorization))
    assert await shown(guarded.ours, head) == await shown(guarded.reference, head)


@pytest.mark.parametrize("name", HEADS)
@requirement("http:authorization-order")
async def test_answers_to_strangers_are_the_same(guarded, name):
    assert await shown(guarded.ours, HEADS[name]) == await shown(guarded.reference, HEADS[name])


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(claims: Any, *, header: Any = None, secret: bytes = SECRET) -> str:
    parts = [header or {"alg": "HS256", "typ": "JWT"}, claims]
    signed = ".".join(
        b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in parts
    )
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def tokens() -> dict[str, str]:
    now = int(time.time())
    good: dict[str, Any] = {"exp": now + 600, "iss": "us", "aud": "you"}
    return {
        "good": jwt(good),
        "audience in a list": jwt({**good, "aud": ["x", "you"]}),
        "within the skew": jwt({**good, "exp": now - 2}),
        "not before within the skew": jwt({**good, "nbf": now + 2}),
        "null nbf": jwt({**good, "nbf": None}),
        "unread claims": jwt({**good, "sub": 1, "iat": "x", "jti": []}),
        "odd header": jwt(good, header={"alg": "HS256", "kid": "x", "other": ["y"]}),
        "expired": jwt({**good, "exp": now - 60}),
        "not valid yet": jwt({**good, "nbf": now + 60}),
        "no exp": jwt({"iss": "us", "aud": "you"}),
        "float exp": jwt({**good, "exp": now + 600.0}),
        "text exp": jwt({**good, "exp": str(now + 600)}),
        "null exp": jwt({**good, "exp": None}),
        "large exp": jwt({**good, "exp": 2**63}),
        "other issuer": jwt({**good, "iss": "them"}),
        "no issuer": jwt({"exp": now + 600, "aud": "you"}),
        "number as issuer": jwt({**good, "iss": 1}),
        "other audience": jwt({**good, "aud": "them"}),
        "no audience": jwt({"exp": now + 600, "iss": "us"}),
        "empty audience": jwt({**good, "aud": []}),
        "number as audience": jwt({**good, "aud": [1]}),
        "expired and foreign": jwt({"exp": now - 60, "iss": "them"}),
        "other secret": jwt(good, secret=SECRET[::-1]),
        "none": jwt(good, header={"alg": "none"}),
        "HS512": jwt(good, header={"alg": "HS512"}),
        "lower-case algorithm": jwt(good, header={"alg": "hs256"}),
        "claims are an array": jwt([]),
        "claims are no JSON": jwt(b"x"),
        "repeated exp": jwt(b'{"exp":%d,"exp":%d,"iss":"us","aud":"you"}' % (now + 9, now + 9)),
        "two segments": jwt(good).rpartition(".")[0],
        "four segments": jwt(good) + ".x",
        "padded": jwt(good) + "=",
        "no token": "x",
    }


@pytest.mark.parametrize("name", tokens())
@requirement("http:authorization")
async def test_signed_tokens_are_judged_alike(signed, name):
    head = request_head("GET", "/", upgrade(Authorization=f"Bearer {tokens()[name]}"))
    assert await shown(signed.ours, head) == await shown(signed.reference, head)
