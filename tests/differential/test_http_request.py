"""http/request: the same from the reference and from ours, on the wire to the target and back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.certificates import make_certificates
from tests.support.comparing import Both
from tests.support.http_target import Line, Received, Target, hello, target
from tests.support.http_wire import ask, body_of, deltas, encoded
from tests.support.local import connected
from tests.support.servers import reference_binary, start_reference, start_server

pytestmark = pytest.mark.one_loop

NAMES = ("Content-Type", "Content-Encoding", "Authorization", "Cookie", "Referer", "Host", "X")


def headers(**values: str) -> list[dict[str, str]]:
    return [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]


async def behave(request: Received, line: Line) -> None:
    """Everything that a target may do, by its path."""
    path, _, query = request.path.partition("?")
    raw = ANSWERS.get(path)
    if raw is not None:
        await line.say(raw)
        line.cut()
    elif path == "/drop":
        line.cut()
    elif path == "/hang":
        await line.hung_up()
    elif path == "/redirect":
        status, _, location = query.partition("=")
        port = line.writer.get_extra_info("sockname")[1]
        await line.answer(int(status), b"", f"Location: {location.replace('PORT', str(port))}")
    elif request.line.startswith("HEAD"):
        await line.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    else:
        await hello(request, line)


ANSWERS: dict[str, bytes | str] = {
    "/until-close": "HTTP/1.1 200 OK\r\n\r\nabc",
    "/short": "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
    "/short-chunks": "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "/garbage": "nonsense\r\n\r\n",
    "/switching": "HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "/early": "HTTP/1.1 103 E\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "/gzip": "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
    "/binary": b"HTTP/1.1 200 OK\r\nX-Bin: \xff\r\nX-Tab: a\tb\r\ncontent-length: 0\r\n\r\n",
    "/no-content": "HTTP/1.1 204 N\r\n\r\n",
    "/teapot": "HTTP/1.1 418 T\r\ncontent-length: 3\r\n\r\ntea",
    "/no-location": "HTTP/1.1 302 F\r\ncontent-length: 3\r\n\r\nxyz",
    "/long-header": f"HTTP/1.1 200 OK\r\nx-long: {'a' * 300_000}\r\ncontent-length: 0\r\n\r\n",
    "/cookie": "HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n",
}


class Pair(NamedTuple):
    """Both servers, and a target that sees what they send."""

    both: Both
    origin: Target

    async def agree(self, path: str = "", method: str = "GET", **params: Any) -> dict[str, Any]:
        """What both answered; what they sent is compared as well."""
        url = params.pop("url", None) or f"{self.origin.url}{path}"
        outcomes = [await self._ask(server, url, method, params) for server in self.both]
        assert outcomes[1] == outcomes[0]
        result: dict[str, Any] = outcomes[0][0]
        return result

    async def _ask(self, server: str, url: str, method: str, params: dict[str, Any]) -> Any:
        async with connected(server) as wire:
            outcome = await ask(wire, url, method, **params)
        return outcome, [request.comparable() for request in self.origin.take()]

    async def agree_streamed(self, path: str) -> bytes:
        """The body that both streamed, and the error at its end."""
        found = []
        for server in self.both:
            async with connected(server) as wire:
                result = await ask(wire, f"{self.origin.url}{path}", streamResponse=True)
                parts = await deltas(wire)
            found.append((result, body_of(parts), parts[-1]["error"]))
            assert [part["seq"] for part in parts] == list(range(1, len(parts) + 1))
        assert found[1] == found[0]
        return found[0][1]


@pytest.fixture
async def pair(both: Both) -> AsyncIterator[Pair]:
    async with target(behave) as origin:
        yield Pair(both, origin)


@pytest.mark.parametrize("method", ["GET", "get", "POST", "HEAD", "M-SEARCH", "", "A B", "é"])
async def test_methods(pair, method):
    await pair.agree("/x?q=1#f", method)
    await pair.agree("/x", method, bodyBase64=encoded(b"abc"))


@pytest.mark.parametrize(
    "given",
    [
        headers(X_Test="1", B="", x_test="2"),
        headers(Host="other", Accept="a/b", User_Agent="me"),
        headers(Connection="close"),
        headers(Content_Length="3"),
        headers(Content_Length="x"),
        headers(Transfer_Encoding="chunked"),
        headers(X="é \t y"),
        [{"name": "", "value": "v"}],
        [{"name": "a b", "value": "v"}],
        [{"name": "ok", "value": "a\nb"}],
        [{"name": "ok", "value": "\x7f"}],
    ],
)
async def test_headers(pair, given):
    await pair.agree("/", "POST", headers=given, bodyBase64=encoded(b"abc"))


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "//x", "http://", "http:///", "http://[::1", "http://a:99999", "http://a b/",
        "ftp://x", "FILE:///x", "data:x", "ws://h", "http://1.2.3.4.5/", "http://256.1.1.1",
        "http://%00/", "http://a%2fb", "http://[fe80::1%25eth0]/", "http://127.0.0.1:1/x",
    ],
)  # fmt: skip
async def test_urls_that_fail(pair, url):
    await pair.agree(url=url or " ")


@pytest.mark.parametrize("path", ["/a/../b/./c d?x y'\"<>{}`^|é", "/a b{}^|[]\\c%zz", "?q"])
async def test_paths(pair, path):
    await pair.agree(path)


async def test_credentials_in_a_url(pair):
    url = f"http://us%20er:p%40w@127.0.0.1:{pair.origin.port}/redirect?302=/end"
    await pair.agree(url=url)
    await pair.agree(url=url, headers=headers(Authorization="mine"))
    await pair.agree("/redirect?302=http://u:p@127.0.0.1:PORT/end")


@pytest.mark.parametrize("path", [*ANSWERS, "/drop"])
async def test_answers(pair, path):
    await pair.agree(path)


@pytest.mark.parametrize("path", ["/", "/until-close", "/short", "/no-content", "/gzip"])
async def test_streams(pair, path):
    await pair.agree_streamed(path)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD"])
async def test_redirects(pair, status, method):
    given = [{"name": name, "value": "v"} for name in NAMES]
    for location in ("/end", "http://localhost:PORT/end"):
        path = f"/redirect?{status}={location}"
        await pair.agree(path, method, headers=given, bodyBase64=encoded(b"abc"))


@pytest.mark.parametrize("location", ["ftp://x", "http://[", "end", "?q=1", "#f"])
async def test_locations(pair, location):
    await pair.agree(f"/redirect?302={location}")


async def test_timeouts(pair):
    await pair.agree("/x", timeoutMs=0)
    # A reference that is slow to connect says something else.
    await pair.agree("/hang", timeoutMs=5000)


@pytest.mark.parametrize(
    "params",
    [
        {"headers": None},
        {"redirectPolicy": None},
        {"redirectPolicy": "stop"},
        {"streamResponse": None},
        {"bodyBase64": ""},
        {"bodyBase64": None},
        {"timeoutMs": None},
    ],
)
async def test_params(pair, params):
    outcomes = []
    for server in pair.both:
        async with connected(server) as wire:
            outcome = await ask(wire, pair.origin.url, **params)
            # The wording of a decoder is its own.
            outcomes.append(outcome.get("code", outcome))
    assert outcomes[1] == outcomes[0]


# With an environment of their own.


@pytest.fixture(scope="module")
def variables(tmp_path_factory) -> dict[str, str]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    return {
        "PROBE_TOKEN": "secret",
        "PROBE_EMPTY": "",
        "OPENAI_API_KEY": "key",
        "CODEX_CA_CERTIFICATE": str(certificates.authority),
    }


@pytest.fixture(scope="module")
def with_variables(variables: dict[str, str]) -> Iterator[Both]:
    yield from _both_in(variables)


def _both_in(env: dict[str, str]) -> Iterator[Both]:
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    with start_reference(binary, env=env) as reference, start_server(env=env) as ours:
        yield Both(reference.url, ours.url)


@pytest.mark.parametrize(
    "variable",
    ["PROBE_TOKEN", "probe_token", "PROBE_EMPTY", "", "OPENAI_API_KEY", "AWS_session_TOKEN"],
)  # fmt: skip
async def test_values_of_the_environment(with_variables, variable):
    given = [{"name": "X-Y", "value": "Bearer ", "valueEnvVar": variable}]
    async with target(behave) as origin:
        await Pair(with_variables, origin).agree("/x", headers=given)


async def test_a_custom_authority(with_variables, tmp_path, variables):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(variables["CODEX_CA_CERTIFICATE"]).parent / "server.pem")
    async with target(behave, tls=context) as origin:
        assert (await Pair(with_variables, origin).agree("/x"))["status"] == 200
    unknown = make_certificates(tmp_path)
    async with target(behave, tls=unknown.server) as origin:
        await Pair(with_variables, origin).agree("/x")


async def test_proxies():
    async with target(hello) as origin:
        proxy = f"http://user:pw@127.0.0.1:{origin.port}"
        env = {"HTTP_PROXY": proxy, "NO_PROXY": "direct.invalid,.below.invalid", "no_proxy": ""}
        servers = _both_in(env)
        # Started by a thread: the target answers on this loop.
        pair = Pair(await asyncio.to_thread(next, servers), origin)
        try:
            for host in ("a.invalid", "127.0.0.1:1", "direct.invalid", "x.below.invalid"):
                await pair.agree(url=f"http://{host}/x?q")
        finally:
            await asyncio.to_thread(servers.close)  # type: ignore[attr-defined]
