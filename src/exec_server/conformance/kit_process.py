"""A process on a connection of the kit, and its events."""

from __future__ import annotations

import base64
import itertools
from typing import Any

from exec_server.conformance.check import CheckFailed, expect, expect_that
from exec_server.conformance.kit_wire import KitWire, Message

PATH = "/usr/local/bin:/usr/bin:/bin"
_numbers = itertools.count(1)


class KitProcess:
    """A process that was started, and what its events have told so far."""

    def __init__(self, wire: KitWire, process_id: str) -> None:
        self.wire = wire
        self.id = process_id

    async def event(self, method: str) -> Message:
        """The params of the next such event of this process."""

        def is_it(message: Message) -> bool:
            params = message.get("params")
            return (
                message.get("method") == method
                and isinstance(params, dict)
                and params.get("processId") == self.id
            )

        params: Message = (await self.wire.find(is_it))["params"]
        return params

    async def finished(self) -> Finished:
        """All events up to the close."""
        await self.event("process/closed")
        mine = [
            message
            for message in self.wire.history
            if str(message.get("method", "")).startswith("process/")
            and message.get("params", {}).get("processId") == self.id
        ]
        return Finished(mine)

    async def read(self, **params: Any) -> Message:
        result: Message = await self.wire.call("process/read", {"processId": self.id, **params})
        return result

    async def write(self, data: bytes, write_id: str) -> str:
        chunk = base64.b64encode(data).decode()
        params = {"processId": self.id, "chunk": chunk, "writeId": write_id}
        status: str = (await self.wire.call("process/write", params))["status"]
        return status

    async def output_until(self, wanted: bytes) -> bytes:
        """Output, of any stream, until *wanted* is in it."""
        seen = b""
        while wanted not in seen:
            seen += base64.b64decode((await self.event("process/output"))["chunk"])
        return seen


class Finished:
    """All events of a process that has closed."""

    def __init__(self, events: list[Message]) -> None:
        self.events = events

    @property
    def exit_code(self) -> Any:
        return self._only("process/exited")["exitCode"]

    @property
    def sandbox_denied(self) -> Any:
        return self._only("process/exited")["sandboxDenied"]

    def output(self, stream: str) -> bytes:
        """The bytes of one stream, in the order of their numbers."""
        chunks = [event["params"] for event in self.events if event["method"] == "process/output"]
        mine = sorted((c for c in chunks if c["stream"] == stream), key=lambda c: int(c["seq"]))
        return b"".join(base64.b64decode(chunk["chunk"], validate=True) for chunk in mine)

    def check_numbers(self) -> None:
        """Fail unless each number from 1 on was used once, and the close has the last."""
        numbers = [event["params"]["seq"] for event in self.events]
        expect("the numbers of all events", sorted(numbers), list(range(1, len(numbers) + 1)))
        closed = self._only("process/closed")["seq"]
        expect("the number of the close", closed, len(numbers))

    def _only(self, method: str) -> Message:
        found = [event["params"] for event in self.events if event["method"] == method]
        if len(found) != 1:
            raise CheckFailed(f"expected one {method}, saw {len(found)}")
        params: Message = found[0]
        return params


def start_params(argv: list[str], **params: Any) -> Message:
    """The parameters of a start, with a new id."""
    return {
        "processId": f"check-{next(_numbers)}",
        "argv": argv,
        "cwd": "file:///tmp",
        "env": {"PATH": PATH},
        "tty": False,
        "pipeStdin": False,
        "arg0": None,
        **params,
    }


async def start(wire: KitWire, argv: list[str], **params: Any) -> KitProcess:
    """Start a program."""
    asked = start_params(argv, **params)
    result = await wire.call("process/start", asked)
    expect("the id in the answer to the start", result["processId"], asked["processId"])
    return KitProcess(wire, asked["processId"])


async def run(wire: KitWire, argv: list[str], **params: Any) -> Finished:
    """Start a program and wait until it is closed."""
    return await (await start(wire, argv, **params)).finished()


async def shell(wire: KitWire, script: str, **params: Any) -> Finished:
    return await run(wire, ["/bin/sh", "-c", script], **params)


async def wants_error(wire: KitWire, code: int, method: str, params: Any = None) -> Message:
    """The error of a request that has to fail with *code*."""
    error = await wire.error(method, params)
    expect(f"the code of the error of {method}", error["code"], code)
    expect_that(isinstance(error.get("message"), str), "a text in the error", error)
    return error
