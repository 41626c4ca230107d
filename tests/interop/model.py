"""A scripted model on the loopback: the test answers for it, call by call."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable
from typing import Any, NamedTuple

from aiohttp import web

PATIENCE = 45.0


class Call(NamedTuple):
    """A tool that the model wants used."""

    name: str
    arguments: dict[str, Any] | str
    namespace: str | None = None

    def item(self, call_id: str) -> dict[str, Any]:
        if isinstance(self.arguments, str):
            return {
                "type": "custom_tool_call",
                "call_id": call_id,
                "name": self.name,
                "input": self.arguments,
            }
        item = {
            "type": "function_call",
            "call_id": call_id,
            "name": self.name,
            "arguments": json.dumps(self.arguments),
        }
        return item if self.namespace is None else {**item, "namespace": self.namespace}


def exec_command(cmd: str, *, yield_time_ms: int = 20_000, **arguments: Any) -> Call:
    """Run *cmd* in the user's shell, without the files that a login reads unless asked."""
    return Call(
        "exec_command",
        {"cmd": cmd, "yield_time_ms": yield_time_ms, "login": False, **arguments},
    )


def write_stdin(session: int, chars: str = "", *, yield_time_ms: int = 20_000) -> Call:
    return Call(
        "write_stdin", {"session_id": session, "chars": chars, "yield_time_ms": yield_time_ms}
    )


def apply_patch(patch: str) -> Call:
    return Call("apply_patch", f"*** Begin Patch\n{patch}*** End Patch\n")


def view_image(path: object) -> Call:
    return Call("view_image", {"path": str(path)})


class Output(str):
    """What the model is told of one call."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """What the command itself said."""
        _, found, text = self.partition("Output:\n")
        assert found, f"the tool has failed: {self[:500]!r}"
        return text

    @property
    def exit_code(self) -> int:
        found = re.search(r"[Pp]rocess exited with code (-?\d+)", self)
        assert found, f"the command has not ended: {self[:500]!r}"
        return int(found[1])

    @property
    def session(self) -> int:
        """The session that is still running."""
        found = re.search(r"session ID (\d+)", self)
        assert found, f"the command is not running: {self[:500]!r}"
        return int(found[1])


class _Request(NamedTuple):
    body: dict[str, Any]
    reply: asyncio.Future[list[dict[str, Any]]]


class Model:
    """A model whose caller waits until the test has decided the answer."""

    def __init__(self) -> None:
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._current: _Request | None = None
        self._numbers = itertools.count(1)
        self._asked: list[str] = []
        self._replies: list[asyncio.Future[list[dict[str, Any]]]] = []
        self.port = 0

    async def request(self) -> dict[str, Any]:
        """What the client sent, once it waits for an answer."""
        if self._current is None:
            async with asyncio.timeout(PATIENCE):
                self._current = await self._requests.get()
        assert self._current is not None, "the client has ended early"
        return self._current.body

    async def ask(self, *calls: Call) -> None:
        """Have tools used, all at once; `answers` tells what came of it."""
        await self.request()
        self._asked = [f"call-{next(self._numbers)}" for _ in calls]
        self._reply([call.item(id_) for call, id_ in zip(calls, self._asked, strict=True)])

    async def answers(self) -> list[Output]:
        """What the client tells of each call, in their order."""
        body = await self.request()
        told = {
            item["call_id"]: Output(_text(item["output"]))
            for item in body["input"]
            if item.get("type") in ("function_call_output", "custom_tool_call_output")
        }
        return [told[id_] for id_ in self._asked]

    async def call(self, call: Call) -> Output:
        """Have one tool used and wait for its end."""
        await self.ask(call)
        (output,) = await self.answers()
        return output

    async def finish(self) -> None:
        """End the turn."""
        await self.request()
        content = [{"type": "output_text", "text": "done"}]
        self._reply([{"type": "message", "role": "assistant", "id": "m1", "content": content}])

    async def abandon_after(self, end: Awaitable[object]) -> None:
        """No request comes after *end*; a test that waits for that goes on."""
        await end
        self._requests.put_nowait(None)

    def close(self) -> None:
        """Leave requests that still wait without an answer."""
        for reply in self._replies:
            reply.cancel()

    def _reply(self, items: list[dict[str, Any]]) -> None:
        assert self._current is not None
        current, self._current = self._current, None
        if not current.reply.done():
            current.reply.set_result(items)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        reply: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request(await request.json(), reply))
        self._replies.append(reply)
        items = await reply
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r1"}},
            *({"type": "response.output_item.done", "item": item} for item in items),
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return web.Response(text=text, content_type="text/event-stream")


def _text(output: Any) -> str:
    """Tools answer with a text or with a list of texts and pictures."""
    if isinstance(output, str):
        return output
    return "".join(part.get("text") or part.get("image_url", "") for part in output)


@contextlib.asynccontextmanager
async def scripted_model() -> AsyncIterator[Model]:
    model = Model()
    app = web.Application(client_max_size=1 << 27)
    app.router.add_post("/v1/responses", model.respond)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    model.port = runner.addresses[0][1]
    try:
        yield model
    finally:
        model.close()
        await runner.cleanup()
