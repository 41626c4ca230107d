"""What tests of fs/* say again and again."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exec_server.protocol.paths import to_uri
from tests.support.wire import PATIENCE, Wire

NOT_FOUND, REFUSED, INVALID, FAILED = -32004, -32600, -32602, -32603


def uri(path: Path | bytes | str) -> str:
    return to_uri(os.fsencode(path))


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def code(wire: Wire, method: str, params: Any) -> int:
    """The code of a request that must fail."""
    number: int = (await wire.error(method, params))["code"]
    return number


async def read(wire: Wire, path: Path | bytes | str, **params: Any) -> bytes:
    result = await wire.call("fs/readFile", {"path": uri(path), **params})
    return base64.b64decode(result["dataBase64"], validate=True)


async def write(wire: Wire, path: Path | bytes | str, data: bytes, **params: Any) -> None:
    params = {"path": uri(path), "dataBase64": encoded(data), **params}
    assert await wire.call("fs/writeFile", params) == {}


async def until(condition: Callable[[], bool]) -> None:
    """Returns once *condition* holds, of which nothing else tells."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def open_descriptors() -> set[int]:
    """Those of this process that lead to a file on a disk or in memory."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("/") and not target.startswith(("/dev", "/proc")):
            found.add(int(name))
    return found
