"""A client of the server in this process, and one of each kind of server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.local_server import local
from exec_server.server.serving import RunningServer


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[ExecServerClient]:
    """Connected to `server`."""
    async with connect(server.url) as connected:
        yield connected


@pytest.fixture(params=["memory", "stdio", "reference"])
async def anywhere(request: pytest.FixtureRequest) -> AsyncIterator[ExecServerClient]:
    """Connected to our server in memory and over stdio, and to the reference."""
    if request.param == "memory":
        opened = local()
    elif request.param == "stdio":
        opened = connect(f"stdio:{sys.executable} -m exec_server --listen stdio")
    else:
        opened = connect(request.getfixturevalue("reference").url)
    async with opened as connected:
        yield connected


def is_ours(client: ExecServerClient) -> bool:
    """True if the server of *client* is ours, and not the reference."""
    return client.server_instance is not None
