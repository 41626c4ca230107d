"""Shorthand for servers in this process and for raw connections to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from exec_server.limits import Limits
from exec_server.server.serving import RunningServer, serve
from tests.support.wire import Wire


@contextlib.asynccontextmanager
async def server_with(**limits: Any) -> AsyncIterator[RunningServer]:
    """A server with other limits than the shipped ones."""
    async with serve(limits=Limits(**limits)) as running:
        yield running


@contextlib.asynccontextmanager
async def wire_with(**limits: Any) -> AsyncIterator[Wire]:
    """A connection, after the handshake, to a server with other limits than the shipped ones."""
    async with server_with(**limits) as running, connected(running.url) as wire:
        yield wire


@contextlib.asynccontextmanager
async def connected(url: str, **params: Any) -> AsyncIterator[Wire]:
    """A connection after the handshake; *params* go to `initialize`."""
    async with Wire(url) as wire:
        await wire.initialize(**params)
        yield wire


async def resumed(url: str, session_id: str) -> Wire:
    """A new connection to a session whose old one has ended, though maybe not yet noticed."""
    wire = await Wire(url).__aenter__()
    params = {"clientName": "wire", "resumeSessionId": session_id}
    answer = await wire.answer(await wire.request("initialize", params))
    while answer.get("error", {}).get("code") == -32010:
        answer = await wire.answer(await wire.request("initialize", params))
    assert "result" in answer, answer
    assert answer["result"]["sessionId"] == session_id
    await wire.send({"method": "initialized"})
    return wire
