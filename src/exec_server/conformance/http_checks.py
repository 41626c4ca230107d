"""`http/*`: requests that the server makes, to a small listener beside the kit."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from exec_server.conformance.check import Kit, check, expect, expect_that
from exec_server.conformance.kit_process import wants_error
from exec_server.conformance.kit_wire import Message

_INVALID = -32602
_BODY = b"0123456789" * 5000


@asynccontextmanager
async def _listener() -> AsyncIterator[str]:
    """A web server on this machine that answers each request with what it was asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        fields = dict(
            line.split(": ", 1) for line in head.lower().split("\r\n")[1:] if ": " in line
        )
        body = await reader.readexactly(int(fields.get("content-length", 0)))
        path = head.split()[1]
        if path == "/missing":
            status, told = "404 Not Found", b"no"
        elif path == "/large":
            status, told = "200 OK", _BODY
        else:
            status, told = "200 OK", head.split("\r\n")[0].encode() + b"\n" + body
        writer.write(
            f"HTTP/1.1 {status}\r\nX-Kit: seen\r\nContent-Length: {len(told)}\r\n"
            "Connection: close\r\n\r\n".encode()
            + told
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _request(url: str, **params: object) -> Message:
    return {"method": "GET", "url": url, "headers": [], "requestId": "r", **params}


@check("http.get", "A request's status, headers and body come back.", suite="http")
async def get(kit: Kit) -> None:
    wire = await kit.ready()
    async with _listener() as base:
        found = await wire.call("http/request", _request(f"{base}/path?q=1"))
        expect("the status", found["status"], 200)
        headers = {header["name"]: header["value"] for header in found["headers"]}
        expect("a header", headers.get("x-kit"), "seen")
        body = base64.b64decode(found["bodyBase64"])
        expect_that(body.startswith(b"GET /path?q=1 HTTP/1.1\n"), "the request line", body)


@check("http.post", "A body is sent as it is.", suite="http")
async def post(kit: Kit) -> None:
    wire = await kit.ready()
    async with _listener() as base:
        sent = base64.b64encode(b"\x00body").decode()
        asked = _request(f"{base}/", method="POST", bodyBase64=sent)
        found = await wire.call("http/request", asked)
        expect("the body", base64.b64decode(found["bodyBase64"]).partition(b"\n")[2], b"\x00body")


@check("http.status", "An HTTP error is a result, not an error.", suite="http")
async def status(kit: Kit) -> None:
    wire = await kit.ready()
    async with _listener() as base:
        found = await wire.call("http/request", _request(f"{base}/missing"))
        expect("the status", found["status"], 404)
        expect("the body", base64.b64decode(found["bodyBase64"]), b"no")


@check(
    "http.stream",
    "A streamed body comes in numbered pieces, and the last one says so.",
    suite="http",
)
async def stream(kit: Kit) -> None:
    wire = await kit.ready()
    async with _listener() as base:
        asked = _request(f"{base}/large", requestId="large", streamResponse=True)
        found = await wire.call("http/request", asked)
        expect("the body of the answer", found["bodyBase64"], "")
        body, number, is_done = b"", 0, False
        while not is_done:
            event = (await wire.find(lambda m: m.get("method") == "http/request/bodyDelta"))[
                "params"
            ]
            number += 1
            expect("the number", event["seq"], number)
            expect("the request", event["requestId"], "large")
            body += base64.b64decode(event["deltaBase64"])
            is_done = event["done"]
        expect_that(body == _BODY, "the whole body", len(body))


@check("http.refused", "A URL of another scheme is refused with -32602.", suite="http")
async def refused(kit: Kit) -> None:
    wire = await kit.ready()
    for url in ("ftp://127.0.0.1/", "file:///etc/passwd", "no url"):
        await wants_error(wire, _INVALID, "http/request", _request(url))


@check("http.no-server", "A server that does not listen is -32603.", suite="http")
async def no_server(kit: Kit) -> None:
    wire = await kit.ready()
    async with _listener() as base:
        pass
    await wants_error(wire, -32603, "http/request", _request(f"{base}/"))
