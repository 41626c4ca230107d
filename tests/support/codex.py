"""The reference as an executor, and as a client that a scripted model drives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

API_KEY = "sk-loopback"


@contextlib.asynccontextmanager
async def codex(
    binary: Path, *words: str, home: Path, **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`codex WORDS...` with a home of its own; killed at the end."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CODEX_", "OPENAI_"))}
    process = await asyncio.create_subprocess_exec(
        str(binary),
        *words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        limit=1 << 24,
        env={**inherited, "CODEX_HOME": str(home), **env},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class Model:
    """A model that asks for one command and is told what came of it."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._answered = asyncio.get_running_loop().create_future()

    async def output(self) -> str:
        """What the command gave, in the client's words."""
        async with asyncio.timeout(60):
            return str(await self._answered)

    async def respond(self, request: web.Request) -> web.Response:
        body = await request.json()
        outputs = [
            item["output"] for item in body["input"] if item.get("type") == "function_call_output"
        ]
        if outputs:
            if not self._answered.done():
                self._answered.set_result(outputs[-1])
            item = {
                "type": "message",
                "role": "assistant",
                "id": "m1",
                "content": [{"type": "output_text", "text": "done"}],
            }
        else:
            arguments = json.dumps({"cmd": self._command, "yield_time_ms": 10_000})
            item = {
                "type": "function_call",
                "call_id": "c1",
                "name": "exec_command",
                "arguments": arguments,
            }
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return web.Response(text=text, content_type="text/event-stream")


@contextlib.asynccontextmanager
async def model(command: str, home: Path) -> AsyncIterator[Model]:
    """A model on the loopback that the configuration in *home* names."""
    made = Model(command)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/v1/responses", made.respond)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "scripted"\n'
        'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        '[model_providers.scripted]\nname = "scripted"\nwire_api = "responses"\n'
        f'base_url = "http://127.0.0.1:{port}/v1"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
        "[features]\nunified_exec = true\n"
    )
    try:
        yield made
    finally:
        await runner.cleanup()


async def turn(process: asyncio.subprocess.Process, cwd: str) -> None:
    """Make `codex app-server` ask its model once."""
    await _call(process, 1, "initialize", {"clientInfo": {"name": "test", "version": "1"}})
    _say(process, {"method": "initialized"})
    started = await _call(process, 2, "thread/start", {"cwd": cwd})
    await _call(
        process,
        3,
        "turn/start",
        {"threadId": started["thread"]["id"], "input": [{"type": "text", "text": "go"}]},
    )


def _say(process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")


async def _call(
    process: asyncio.subprocess.Process, id_: int, method: str, params: dict[str, Any]
) -> Any:
    assert process.stdout is not None
    _say(process, {"id": id_, "method": method, "params": params})
    async with asyncio.timeout(30):
        async for line in process.stdout:
            message = json.loads(line)
            if message.get("id") == id_ and "method" not in message:
                assert "result" in message, message
                return message["result"]
    raise AssertionError("the client has ended")
