"""Parts for tests of the managed network: proxies, local servers, and a client that decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from exec_server.limits import Limits
from exec_server.network.addresses import as_address
from exec_server.network.proxy import ManagedProxy
from exec_server.network.upstream import Resolution
from exec_server.protocol import network
from tests.support.wire import PATIENCE, Wire, start_params

SWITCHES = {
    "enabled": True,
    "enableSocks5": True,
    "enableSocks5Udp": True,
    "allowUpstreamProxy": False,
    "dangerouslyAllowAllUnixSockets": False,
    "mode": "full",
    "allowLocalBinding": False,
}
_BESIDE = ("policyDecisionTimeoutMs", "auditMetadata", "environmentId", "executionId")


def wanted(**members: Any) -> dict[str, Any]:
    """The `networkProxy` parameters of process/start."""
    beside = {name: members.pop(name) for name in _BESIDE if name in members}
    return {"proxy": {**SWITCHES, **members}, **beside}


class Decides:
    """A client that answers with *answer* and records the notifications."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[network.PolicyRequestParams] = []
        self.told: list[network.PolicyDecisionEvent] = []
        self.open: list[asyncio.Future[Any]] = []
        self.was_asked = asyncio.Event()
        self.was_told = asyncio.Event()

    def ask_policy(self, params: network.PolicyRequestParams) -> asyncio.Future[Any] | None:
        self.asked.append(params)
        future = asyncio.get_running_loop().create_future()
        self.open.append(future)
        self.was_asked.set()
        if self.answer is not None:
            future.set_result({"decision": self.answer})
        return future

    def ask_grant(
        self, process_id: str, protocol: str, host: str, port: int
    ) -> asyncio.Future[bool] | None:
        return None

    def report_decision(self, event: network.PolicyDecisionEvent) -> None:
        self.told.append(event)
        self.was_told.set()

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.told]


class Proxy:
    """A proxy in this process, and its address."""

    def __init__(self, managed: ManagedProxy, env: dict[str, str], client: Decides) -> None:
        self.managed = managed
        self.client = client
        self.env = env
        self.http = int(env["HTTP_PROXY"].rpartition(":")[2])
        self.any = int(env["ALL_PROXY"].rpartition(":")[2])


@contextlib.asynccontextmanager
async def proxy(
    *,
    client: Decides | None = None,
    limits: Limits | None = None,
    names: dict[str, list[str]] | None = None,
    server_env: dict[str, str] | None = None,
    reaches_private: bool = False,
    **members: Any,
) -> AsyncIterator[Proxy]:
    """A proxy that resolves *names* instead of asking the system."""
    client = client or Decides()

    async def resolver(host: str) -> Resolution:
        literal = as_address(host)
        texts = [host] if literal else (names or {}).get(host, [])
        found = [address for text in texts if (address := as_address(text)) is not None]
        return Resolution(found, host)

    managed = ManagedProxy(
        "p",
        msgspec.convert(wanted(**members), network.NetworkProxy),
        client=client,
        limits=limits or Limits(),
        server_env=server_env or {},
        reaches_private=reaches_private,
        resolver=resolver,
    )
    try:
        yield Proxy(managed, managed.listen(), client)
    finally:
        managed.close()
        # Cancelled tasks get the time to end.
        for _ in range(5):
            await asyncio.sleep(0)


class Origin:
    """A local HTTP server that sends *answer* to each request, and keeps the heads of requests."""

    def __init__(self, answer: bytes, *, closes: bool) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.ended = asyncio.Event()
        self._closes = closes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await _body(reader, head.lower()))
                writer.write(self.answer)
                await writer.drain()
                if self._closes:
                    break
        self.ended.set()
        writer.close()


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if b"transfer-encoding: chunked" in head:
        return await reader.readuntil(b"0\r\n\r\n")
    _, found, rest = head.partition(b"content-length: ")
    return await reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b""


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nok"


@contextlib.asynccontextmanager
async def origin(answer: bytes = OK, *, closes: bool = False) -> AsyncIterator[tuple[Origin, int]]:
    """A local HTTP server and its port."""
    made = Origin(answer, closes=closes)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def dialled(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a port of the loopback."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def said(port: int, data: bytes) -> bytes:
    """The whole answer to *data*, after which the sender closes its side."""
    async with asyncio.timeout(PATIENCE), dialled(port) as (reader, writer):
        writer.write(data)
        return await reader.read()


async def answered(port: int, data: bytes) -> tuple[bytes, bytes]:
    """The head and the body of the answer to one HTTP request."""
    async with asyncio.timeout(PATIENCE), dialled(port) as (reader, writer):
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        _, found, rest = head.lower().partition(b"content-length: ")
        size = int(rest.split(b"\r\n")[0]) if found else 0
        has_body = not data.startswith(b"HEAD ")
        return head, await reader.readexactly(size) if has_body else b""


def get(host: str, *, method: str = "GET", headers: str = "", body: bytes = b"") -> bytes:
    """A request for *host* in the form that a proxy expects."""
    head = f"{method} http://{host}/p?q HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"
    return head.encode() + body


async def socks(port: int, host: bytes, to: int, *, command: int = 1) -> tuple[Any, Any, bytes]:
    """A SOCKS5 connection and the reply to its request; *host* is a name."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x05\x01\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        name = bytes((5, command, 0, 3, len(host))) + host + to.to_bytes(2, "big")
        writer.write(name)
        return reader, writer, await reader.readexactly(10)


async def launch(
    wire: Wire, process_id: str = "p", *, start: dict[str, Any] | None = None, **members: Any
) -> tuple[int, int]:
    """Start a process with a proxy, and return the ports of its HTTP and SOCKS listeners.

    *start* has more parameters of the start.
    """
    argv = ["sh", "-c", "echo $HTTP_PROXY $ALL_PROXY; exec cat"]
    more = {"networkProxy": wanted(**members), **(start or {})}
    params = start_params(process_id, argv, pipeStdin=True, **more)
    await wire.call("process/start", params)
    http, anything = (await wire.output_until(process_id, b"\n")).split()
    return int(http.rpartition(b":")[2]), int(anything.rpartition(b":")[2])
