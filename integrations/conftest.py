"""A server for the suites of other projects."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The suites import helpers from this folder, whatever their environment is.
sys.path.insert(0, str(Path(__file__).parents[1]))

# A server that forgets a client which is gone after a moment, and not after 30 seconds.
IMPATIENT = """
import asyncio, exec_server
async def main():
    limits = exec_server.Limits(detached_session_seconds=0.5)
    async with exec_server.serve(limits=limits) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The URL of a server that runs for the whole suite, in a process of its own."""
    with _served(["-m", "exec_server"]) as url:
        yield url


@pytest.fixture(scope="module")
def impatient_url() -> Iterator[str]:
    """The same of one that forgets clients soon."""
    with _served(["-c", IMPATIENT]) as url:
        yield url


@pytest.fixture(params=[signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def ending(request) -> int:
    """The signal that ends a program."""
    return request.param


@contextlib.contextmanager
def _served(words: list[str]) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, "the server did not start"
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
