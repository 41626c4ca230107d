"""A client of the server in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.server.serving import RunningServer


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[ExecServerClient]:
    """Connected to `server`."""
    async with connect(server.url) as connected:
        yield connected
