"""Who may connect to `exec-server mcp --http`, and for how long without a request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from exec_server.integrations.mcp.bounded_http import Judge, UnaskedConnections, bounded_protocol
from tests.requirements import requirement
from tests.support.children import child
from tests.support.cli import running
from tests.support.wire import PATIENCE

pytestmark = [pytest.mark.one_loop, pytest.mark.timeout(150)]
# The Unix user `nobody`, by its usual number.
STRANGER = 65534
NOT_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel must tell the peer")


async def called(address: str, *options: str, before: tuple[str, ...] = ()) -> str:
    """The status line, and the text, that a program at *address* gets."""
    argv = [*before, *child("calls_a_server.py", address, *options)]
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, check=True, timeout=PATIENCE
    )
    return done.stdout.decode().strip()


@contextlib.asynccontextmanager
async def tools_over_http(tmp_path) -> AsyncIterator[str]:
    """The address of the tools for a server that no test calls."""
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    words = ("mcp", "--http", "127.0.0.1:0", "ws://127.0.0.1:1")
    async with running(*words, env=env) as process, asyncio.timeout(90):
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode()
        yield url.removeprefix("http://").partition("/")[0]


@NOT_LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@requirement("integrations/mcp:http-users")
async def test_without_a_token_another_user_is_refused_and_told_why(tmp_path):
    async with tools_over_http(tmp_path) as address:
        refused = await called(address, f"uid={STRANGER}")
        assert refused.startswith("HTTP/1.1 403") and "--http-token-file" in refused
        assert (await called(address)).startswith("HTTP/1.1 404")


@NOT_LINUX
@requirement("integrations/mcp:http-users")
async def test_without_a_token_a_command_in_a_sandbox_is_refused(tmp_path):
    apart = (shutil.which("unshare") or "/nowhere", "--user", "--map-root-user")
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user namespace can be made here")
    async with tools_over_http(tmp_path) as address:
        assert (await called(address, before=apart)).startswith("HTTP/1.1 403")


@contextlib.asynccontextmanager
async def serving(
    waiting: UnaskedConnections, judge: Judge | None = None
) -> AsyncIterator[tuple[str, int]]:
    """A small application behind the protocol; its address."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        answer, http=bounded_protocol(judge, waiting), lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield listener.getsockname()[:2]
    finally:
        await server.shutdown(sockets=[listener])


@requirement("integrations/mcp:http-waiting")
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"],
)
async def test_a_connection_without_a_whole_request_is_closed(sent):
    async with serving(UnaskedConnections(seconds=0.2)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        writer.close()


@requirement("integrations/mcp:http-waiting")
async def test_silent_connections_give_way():
    async with serving(UnaskedConnections(most=4)) as address, contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            _, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
        reader, writer = await asyncio.open_connection(*address)
        stack.callback(writer.close)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 204")


@requirement("integrations/mcp:http-users")
@pytest.mark.parametrize("end", ["no answer", "an error", "a refusal", "an answer"])
async def test_a_client_that_is_judged_later_is_let_in_by_a_good_answer_alone(end):
    verdict: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    async with serving(UnaskedConnections(), lambda _: verdict) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        match end:
            case "no answer":
                verdict.cancel()
            case "an error":
                verdict.set_exception(OSError("/proc cannot be read"))
            case "a refusal":
                verdict.set_result("go away")
            case _:
                verdict.set_result(None)
        async with asyncio.timeout(PATIENCE):
            status = (await reader.readline()).split()[1]
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status == (b"204" if end == "an answer" else b"403")
            if status == b"403":
                assert b" 204" not in await reader.read()
        writer.close()
