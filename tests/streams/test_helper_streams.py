"""Streams on servers that do not know them."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from exec_server.client_urls import connect
from exec_server.errors import MethodNotFound
from exec_server.server.capabilities import CAPABILITIES
from tests.requirements import requirement
from tests.support.listening import echo, listening
from tests.support.wire import PATIENCE


async def check(client):
    async with listening(echo) as port:
        for _ in range(2):
            reader, writer = await client.open_connection("127.0.0.1", port)
            writer.write(b"x" * 300_000)
            await writer.drain()
            assert await reader.readexactly(300_000) == b"x" * 300_000
            writer.write(b"end")
            writer.write_eof()
            assert await reader.read() == b"end"
            writer.close()
            await writer.wait_closed()
        async with await client.forward(0, port) as forward:
            reader, writer = await asyncio.open_connection(*forward.address)
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"hello"
            writer.close()
            await writer.wait_closed()
    # The port is held and refuses: a free one could be taken by another program meanwhile.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(OSError) as caught:
            await client.open_connection(*held.getsockname())
        assert caught.value.errno == errno.ECONNREFUSED
    with pytest.raises(OSError, match=r"nowhere\.invalid:80: .*[Nn]ame"):
        await client.open_connection("nowhere.invalid", 80)
    with pytest.raises(MethodNotFound):
        await client.start_server(echo)


@requirement("streams/helper")
async def test_a_helper_command_carries_connections(monkeypatch, server):
    known = {**CAPABILITIES, "streams": False}
    monkeypatch.setattr("exec_server.server.late_services.CAPABILITIES", known)
    async with asyncio.timeout(2 * PATIENCE), connect(server.url) as client:
        await check(client)


@requirement("streams/helper")
async def test_a_helper_loads_no_module_of_the_directory_that_it_runs_in(
    monkeypatch, tmp_path, server
):
    for name in ("socket", "threading", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')\n")
    monkeypatch.chdir(tmp_path)
    known = {**CAPABILITIES, "streams": False}
    monkeypatch.setattr("exec_server.server.late_services.CAPABILITIES", known)
    async with asyncio.timeout(2 * PATIENCE), connect(server.url) as client:
        async with listening(echo) as port:
            reader, writer = await client.open_connection("127.0.0.1", port)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()


@requirement("streams/helper")
async def test_a_wait_for_a_helper_that_is_given_up_leaves_no_helper(monkeypatch, server):
    known = {**CAPABILITIES, "streams": False}
    monkeypatch.setattr("exec_server.server.late_services.CAPABILITIES", known)
    # It never says that it is connected.
    silent = "import sys; sys.stdin.read()"
    monkeypatch.setattr("exec_server.client.streams.helper_streams._PROGRAM", silent)
    async with connect(server.url) as client:
        opening = asyncio.ensure_future(client.open_connection("127.0.0.1", 1))
        async with asyncio.timeout(PATIENCE):
            while not await client.list_processes():
                continue
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(PATIENCE):
            while any(each.state == "running" for each in await client.list_processes()):
                continue


@requirement("streams/helper")
@pytest.mark.one_loop
async def test_the_same_with_the_server_of_codex(reference):
    async with asyncio.timeout(2 * PATIENCE), connect(reference.url) as client:
        await check(client)
