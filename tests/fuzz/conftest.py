"""A live server that takes anything, and says of each input what came of it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from exec_server.rpc import boundary
from exec_server.server.serving import RunningServer, serve
from tests.support import leaks
from tests.support.raw import CLOSE, PING, TEXT, Frame, RawSocket
from tests.support.wire import Wire

# Every code that the specification knows in this part.
CODES = {-32600, -32601, -32602, -32603, -32010}
# A violation of JSON-RPC, and text that is not UTF-8.
CLOSE_CODES = {1007, 1008}
SENTINEL = {"id": "sentinel", "method": "environment/status"}


class Live:
    """One server, and one connection that is used again until an input ends it.

    Whatever is logged about an error that is not the client's fails the test.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._sock: RawSocket | None = None
        self.complaints: list[str] = []

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(what)

    async def open(self) -> None:
        self._serving = serve()
        self.server: RunningServer = await self._serving.__aenter__()

    async def close(self) -> None:
        if self._sock is not None:
            await self._sock.__aexit__(None, None, None)
        await self._serving.__aexit__(None, None, None)

    def send(self, payload: bytes, *, opcode: int = TEXT) -> list[dict[str, Any]] | None:
        """What the server says to one message; None when it ends the connection, as it may.

        A request after it proves that the connection is usable, the end that it was told.
        """
        answers: list[dict[str, Any]] | None = self.run(self._send(payload, opcode))
        assert self.complaints == []
        for answer in answers or ():
            check_answer(answer)
        return answers

    async def _send(self, payload: bytes, opcode: int) -> list[dict[str, Any]] | None:
        sock = await self._connected()
        await sock.send_frame(opcode, payload)
        await sock.send_json(SENTINEL)
        answers: list[dict[str, Any]] = []
        while True:
            got = await sock.receive_frame()
            if got.opcode == CLOSE:
                await self._end(sock, got, answers)
                return None
            if got.opcode == PING:
                continue
            message = json.loads(got.payload)
            if message.get("id") == "sentinel":
                assert message["result"] == {"status": "ready"}
                return answers
            answers.append(message)

    async def _end(self, sock: RawSocket, goodbye: Frame, answers: list[dict[str, Any]]) -> None:
        code = int.from_bytes(goodbye.payload[:2], "big")
        assert code in CLOSE_CODES
        # A violation is answered first, with the id -1, which no request has.
        assert (code == 1007) == (answers == [])
        assert not answers or answers[-1]["id"] == -1
        await sock.at_end()
        await sock.__aexit__(None, None, None)
        self._sock = None

    async def _connected(self) -> RawSocket:
        if self._sock is None:
            sock = self._sock = RawSocket(self.server.url)
            await sock.__aenter__()
            await sock.upgrade()
            await sock.send_json(
                {"id": 1, "method": "initialize", "params": {"clientName": "fuzz"}}
            )
            await sock.receive_json()
            await sock.send_json({"method": "initialized"})
        return self._sock

    async def prove_alive(self) -> None:
        """Another client is served."""
        async with Wire(self.server.url) as wire:
            await wire.initialize()
            assert await wire.call("environment/status") == {"status": "ready"}


def check_answer(answer: dict[str, Any]) -> None:
    """Only documented shapes come out, and nothing of the server's inside."""
    if "error" in answer:
        assert set(answer) == {"id", "error"}
        assert set(answer["error"]) == {"code", "message"}
        assert answer["error"]["code"] in CODES, answer
        assert answer["error"]["message"] != "internal error"
    elif "method" in answer:
        assert answer["method"] in ("process/output", "process/exited", "process/closed")
    else:
        assert set(answer) == {"id", "result"}


@pytest.fixture(scope="module", params=[uvloop.new_event_loop, asyncio.new_event_loop])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    with asyncio.Runner(loop_factory=factory) as runner:
        live = Live(runner)

        class Listener(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                live.complaints.append(self.format(record))

        runner.run(leaks.prepare_loop())
        before = runner.run(held())
        listener = Listener(logging.ERROR)
        # Our bugs, and whatever escapes into the event loop.
        watched = [boundary.logger, logging.getLogger("asyncio")]
        for logger in watched:
            logger.addHandler(listener)
        runner.run(live.open())
        yield live
        runner.run(live.close())
        runner.run(leaks.nothing_since(before))
        for logger in watched:
            logger.removeHandler(listener)


async def held() -> leaks.Held:
    return leaks.Held.now()
