"""The same conversation with the reference and with ours, and what is compared of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.support.wire import Wire, decoded, start_params

Conversation = Callable[[Wire], Awaitable[Any]]


class Both(NamedTuple):
    """Two servers at whose URLs the same things are said."""

    reference: str
    ours: str

    async def hear(self, conversation: Conversation, *, handshake: bool = True) -> tuple[Any, Any]:
        """What the reference said, and what ours said."""
        theirs, mine = await asyncio.gather(
            _talk(self.reference, conversation, handshake=handshake),
            _talk(self.ours, conversation, handshake=handshake),
        )
        return theirs, mine

    async def agree(self, conversation: Conversation, *, handshake: bool = True) -> Any:
        """What both said, which must be the same."""
        theirs, mine = await self.hear(conversation, handshake=handshake)
        assert mine == theirs
        return mine


async def _talk(url: str, conversation: Conversation, *, handshake: bool) -> Any:
    async with Wire(url) as wire:
        if handshake:
            await wire.initialize()
        return await conversation(wire)


def outcome(answer: dict[str, Any]) -> Any:
    """An answer without its id and without the free wording of an error."""
    if "error" in answer:
        assert answer["error"].keys() == {"code", "message"}, answer
        return answer["error"]["code"]
    return answer["result"]


async def ask(wire: Wire, method: str, params: Any = None) -> Any:
    """The outcome of one request."""
    return outcome(await wire.answer(await wire.request(method, params)))


async def try_start(wire: Wire, process_id: str = "p", argv: Any = ("true",), **params: Any) -> Any:
    """The outcome of one start."""
    return await ask(wire, "process/start", start_params(process_id, list(argv), **params))


async def ran(wire: Wire, argv: list[str], **params: Any) -> Any:
    """What a process printed on each stream and its exit code, or why it did not start."""
    started = await try_start(wire, "p", argv, **params)
    if isinstance(started, int):
        return started
    return await finished(wire, "p")


async def finished(wire: Wire, process_id: str) -> dict[str, Any]:
    """The streams and the exit code of a process once it has closed, whatever the chunks were."""
    said: dict[str, Any] = {}
    # The reference sends events out of order now and then; the numbers have the last word.
    events = sorted(await _all_events(wire, process_id), key=lambda event: event["params"]["seq"])
    assert [event["params"]["seq"] for event in events] == list(range(1, len(events) + 1))
    for event in events:
        params = event["params"]
        if event["method"] == "process/output":
            said[params["stream"]] = said.get(params["stream"], b"") + decoded(params)
        elif event["method"] == "process/exited":
            said["exitCode"] = params["exitCode"]
            said["sandboxDenied"] = params["sandboxDenied"]
    return said


async def _all_events(wire: Wire, process_id: str) -> list[dict[str, Any]]:
    """Every event of a process: as many as the number of its close says there are."""
    events: list[dict[str, Any]] = []
    last: int | None = None
    while last is None or len(events) < last:
        event = await wire.find(
            lambda m: "method" in m and m["params"].get("processId") == process_id
        )
        events.append(event)
        if event["method"] == "process/closed":
            last = event["params"]["seq"]
    return events
