"""The HTTP client is loaded with the first request, and not in the thread of the event loop."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.requirements import requirement

pytestmark = pytest.mark.one_loop

# Prints which thread imports the library, before and after a request that fails.
PROGRAM = """
import asyncio, sys, threading
from exec_server import connect, serve
from exec_server.errors import RpcError

def hear(event, arguments):
    if event == "import" and arguments[0] == "aiohttp":
        print("loop" if threading.current_thread() is threading.main_thread() else "thread")

async def main():
    async with serve() as server, connect(server.url) as one, connect(server.url) as other:
        print("aiohttp" in sys.modules)
        for _ in range(2):
            await asyncio.gather(*(ask(client) for client in (one, other, one)))

async def ask(client):
    try:
        await client.http.get("http://127.0.0.1:1/")
    except RpcError as exc:
        print("failed" in str(exc))

sys.addaudithook(hear)
asyncio.run(main())
"""


@requirement("http/request:loading")
def test_the_library_is_loaded_once_by_a_thread():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True
    )
    assert ran.stdout.split() == ["False", "thread", *["True"] * 6]
