"""Clients that misbehave, and how much a server minds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.raw import TEXT, RawSocket, frame
from tests.support.wire import start_params


class Deaf(RawSocket):
    """A client that reads no more than it is told to; what it is sent stays where it is."""

    async def initialize(self, **params: Any) -> str:
        """The whole handshake; the session's id."""
        await self.upgrade()
        await self.send_json(
            {"id": 1, "method": "initialize", "params": {"clientName": "deaf", **params}}
        )
        session_id: str = (await self.receive_json())["result"]["sessionId"]
        await self.send_json({"method": "initialized"})
        return session_id

    async def start(self, process_id: str, argv: list[str], **params: Any) -> None:
        """Start a process and read the answer, and nothing more."""
        await self.request("process/start", start_params(process_id, argv, **params))
        assert "result" in await self.receive_json()

    async def request(self, method: str, params: Any = None) -> None:
        await self.send(request(method, params))


def request(method: str, params: Any = None) -> bytes:
    """One request in its frame."""
    return frame(TEXT, json.dumps({"id": 2, "method": method, "params": params}).encode())


def resident_mib(pid: int) -> float:
    """The memory of a process that is in use now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")
