"""A proxy before a real server that plants one fault in what the server says."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Message = dict[str, Any]
# What becomes of a message of the server: None for the message as it is. The second argument is the
# request that it answers, if it is an answer; the third is a place to remember things.
Fault = Callable[[Message, Message | None, dict[str, Any]], list[Message] | None]
FAULTS: dict[str, tuple[Fault, str]] = {}


def fault(*, found_by: str) -> Callable[[Fault], Fault]:
    """Declare a fault that the check *found_by* has to find."""

    def declare(function: Fault) -> Fault:
        FAULTS[function.__name__.replace("_", " ")] = (function, found_by)
        return function

    return declare


@asynccontextmanager
async def planted(url: str, plant: Fault | None) -> AsyncIterator[str]:
    """The URL of a proxy to *url* that plants a fault."""

    async def handle(client: ServerConnection) -> None:
        asked: dict[Any, Message] = {}
        memory: dict[str, Any] = {}
        async with connect(url, compression=None, max_size=None, proxy=None) as server:

            async def forth() -> None:
                async for text in client:
                    try:
                        message = json.loads(text)
                        if isinstance(message, dict) and "method" in message:
                            asked[_key(message.get("id"))] = message
                    except ValueError:
                        pass
                    await server.send(text)
                await server.close()

            task = asyncio.ensure_future(forth())
            try:
                async for text in server:
                    message = json.loads(text)
                    request = None if "method" in message else asked.get(_key(message.get("id")))
                    changed = plant and plant(copy.deepcopy(message), request, memory)
                    for each in [message] if changed is None else changed:
                        await client.send(json.dumps(each))
            except ConnectionClosed:
                pass
            finally:
                task.cancel()
        await client.close()

    async with serve(handle, "127.0.0.1", 0, compression=None, max_size=None) as listener:
        port = next(iter(listener.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}"


def _key(request_id: Any) -> str:
    return json.dumps(request_id)


def answers(method: str, request: Message | None) -> bool:
    return request is not None and request.get("method") == method


def is_event(message: Message, name: str) -> bool:
    return message.get("method") == name


def once(memory: dict[str, Any], name: str = "done") -> bool:
    """True the first time."""
    return not memory.setdefault(name, False) and memory.update({name: True}) is None


def text_of(message: Message) -> bytes:
    return base64.b64decode(message["params"]["chunk"])


def with_text(message: Message, data: bytes) -> Message:
    message["params"]["chunk"] = base64.b64encode(data).decode()
    return message
