"""`codex app-server`: what a user interface does, approvals and interruptions with it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import subprocess
from collections.abc import AsyncIterator
from typing import Any

from tests.interop.client import Codex
from tests.interop.model import PATIENCE


class AppServer:
    """A conversation on standard input and output; every request for approval is granted."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._changed = asyncio.Condition()
        # Methods of the requests that were granted, and notifications in their order.
        self.approved: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.thread_id = ""

    async def start(self, cwd: str) -> None:
        """Shake hands and begin a thread."""
        await self.call("initialize", clientInfo={"name": "interop", "version": "1"})
        self._send({"method": "initialized"})
        started = await self.call("thread/start", cwd=cwd)
        self.thread_id = started["thread"]["id"]

    async def turn(self) -> str:
        """Have the model asked; the id of the turn."""
        text = {"type": "text", "text": "go"}
        started = await self.call("turn/start", threadId=self.thread_id, input=[text])
        turn_id: str = started["turn"]["id"]
        return turn_id

    async def interrupt(self, turn_id: str) -> None:
        await self.call("turn/interrupt", threadId=self.thread_id, turnId=turn_id)

    async def until_event(self, method: str) -> dict[str, Any]:
        """The first notification *method*, once it is there."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: any(e["method"] == method for e in self.events))
        return next(event for event in self.events if event["method"] == method)

    async def call(self, method: str, **params: Any) -> Any:
        id_ = next(self._ids)
        self._pending[id_] = asyncio.get_running_loop().create_future()
        self._send({"id": id_, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            return await self._pending[id_]

    async def read(self) -> None:
        """Take what the other side says, until it has ended."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._take(json.loads(line))
            async with self._changed:
                self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            waiting = self._pending.pop(message["id"])
            if "error" in message:
                waiting.set_exception(AssertionError(message["error"]))
            else:
                waiting.set_result(message["result"])
        elif "id" in message:
            self.approved.append(message["method"])
            self._send({"id": message["id"], "result": {"decision": "accept"}})
        else:
            self.events.append(message)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")


@contextlib.asynccontextmanager
async def app_server(codex: Codex) -> AsyncIterator[AppServer]:
    """An app server with a thread in the working directory; its model is to be there already."""
    pipe = subprocess.PIPE
    async with codex.run("app-server", stdin=pipe, stdout=pipe) as process:
        made = AppServer(process)
        reading = asyncio.ensure_future(made.read())
        try:
            await made.start(str(codex.work))
            yield made
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
