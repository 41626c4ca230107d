"""What every test of sandboxed file calls has: a server that confines, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.sandbox.files import file_calls
from tests.support.local import connected
from tests.support.servers import ServerProcess
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server in a process of its own; a test module gives options in SERVER_OPTIONS."""
    with file_calls.confining_server(*getattr(request.module, "SERVER_OPTIONS", ())) as running:
        yield running


@pytest.fixture
async def wire(server: ServerProcess) -> AsyncIterator[Wire]:
    async with connected(server.url) as wire:
        yield wire


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that no policy gives."""
    path = tmp_path / "outside"
    (path / "sub").mkdir(parents=True)
    (path / "file").write_text("outside")
    return path
