"""One tab of a browser: calls and answers, events, and the bytes of terminals.

Texts are JSON. The tab sends its key first, then calls `{id, call, words}`; it gets
`{id, result}` or `{id, error}`, and events `{event, facts}`. Binary messages begin with the number
of a channel (4 bytes) and a kind (1 byte): output or a whole frame to the tab; typed bytes, or the
number of bytes that were drawn (4 bytes), from it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from exec_server.errors import ExecServerError, InvalidRequest
from exec_server.web.call_words import CallWords, WrongCall
from exec_server.web.page_calls import PageCalls
from exec_server.web.process_list import error_facts
from exec_server.web.viewer import FrameKind, Viewer

if TYPE_CHECKING:
    from exec_server.web.page_access import PageAccess, PageSession
    from exec_server.web.places import PagePlaces
    from exec_server.web.shown_process import ShownProcess

logger = logging.getLogger(__name__)

_HEAD = struct.Struct(">IB")
_COUNT = struct.Struct(">I")
_TO_TAB = {"output": 0, "frame": 1}
_TYPED, _DRAWN = 0, 1

# The text of a small file is the longest message, with room for what JSON escapes.
MAX_MESSAGE = 8 * 1024 * 1024
# How many messages may wait for a tab that does not read. Output is bounded by windows besides.
MAX_WAITING = 2000
MAX_CALLS = 64
MAX_CHANNELS = 64
_KEY_SECONDS = 10.0
_HEARTBEAT = 20.0
_CALL_SECONDS = 120.0
_CHECK_SECONDS = 30.0
# Close codes that the page understands: sign in again; the program ends.
NOT_SIGNED_IN, PROGRAM_ENDS = 4401, 4001


class PageSocket:
    """The WebSocket of one tab."""

    def __init__(self, session: PageSession, access: PageAccess, places: PagePlaces) -> None:
        self.session = session
        self._access = access
        self._places = places
        self._calls = PageCalls(session, access, places)
        self._socket = web.WebSocketResponse(
            heartbeat=_HEARTBEAT, max_msg_size=MAX_MESSAGE, compress=False
        )
        self._waiting: asyncio.Queue[str | bytes] = asyncio.Queue(MAX_WAITING)
        self._running: set[asyncio.Task[None]] = set()
        self._viewers: dict[int, tuple[ShownProcess, Viewer]] = {}
        self._is_hidden = False

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve the tab until it closes."""
        await self._socket.prepare(request)
        if not await self._has_key():
            await self._socket.close(code=NOT_SIGNED_IN, message=b"sign in first")
            return self._socket
        helpers = [
            asyncio.create_task(self._send_waiting(), name="send to a tab"),
            asyncio.create_task(self._check_session(), name="check the session of a tab"),
        ]
        self._places.observe(self._tell)
        try:
            shown = [each.as_json() for each in self._places.shown.values()]
            self._tell("welcome", {"places": self._places.as_json(), "shown": shown})
            async for message in self._socket:
                if message.type == WSMsgType.TEXT:
                    self._receive_text(message.data)
                elif message.type == WSMsgType.BINARY:
                    self._receive_bytes(message.data)
        finally:
            self._places.forget(self._tell)
            for channel in list(self._viewers):
                self._unfollow(channel)
            tasks = [*helpers, *self._running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._socket

    async def close(self) -> None:
        """Tell the tab that the program ends."""
        await self._socket.close(code=PROGRAM_ENDS, message=b"the program ends")

    async def _has_key(self) -> bool:
        try:
            async with asyncio.timeout(_KEY_SECONDS):
                first = await self._socket.receive()
            given = json.loads(first.data) if first.type == WSMsgType.TEXT else None
        except (TimeoutError, ValueError, RecursionError):
            return False
        return isinstance(given, dict) and self._access.has_key(self.session, given.get("key"))

    async def _check_session(self) -> None:
        """Close the socket soon after its session has ended."""
        while self._access.is_signed_in(self.session):
            await asyncio.sleep(_CHECK_SECONDS)
            if not await asyncio.to_thread(self._access.is_good, self.session):
                self._access.sign_out(self.session)
        await self._socket.close(code=NOT_SIGNED_IN, message=b"sign in again")

    # To the tab.

    def _tell(self, event: str, facts: dict[str, Any]) -> None:
        self._put(json.dumps({"event": event, "facts": facts}))

    def _put(self, message: str | bytes) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            # The tab does not read. It connects again when it is awake, and gets everything anew.
            logger.debug("a tab does not read; its socket is closed")
            self._run(self._abort())

    async def _abort(self) -> None:
        transport = self._socket._req.transport if self._socket._req is not None else None
        if transport is not None:
            transport.abort()

    async def _send_waiting(self) -> None:
        try:
            while True:
                message = await self._waiting.get()
                if isinstance(message, str):
                    await self._socket.send_str(message)
                else:
                    await self._socket.send_bytes(message)
        except ConnectionError:
            return

    # From the tab.

    def _receive_text(self, text: str) -> None:
        try:
            message = json.loads(text)
            call_id, name = message["id"], message["call"]
            if not isinstance(call_id, int) or not isinstance(name, str):
                raise WrongCall("a call has a number and a name")
            words = CallWords(message.get("words", {}))
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            logger.debug("a tab has sent no call: %s", exc)
            return
        if len(self._running) >= MAX_CALLS:
            self._answer(call_id, error={"message": "too many calls at once", "code": None})
        else:
            self._run(self._perform(call_id, name, words))

    async def _perform(self, call_id: int, name: str, words: CallWords) -> None:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                result = await self._result(name, words)
        except TimeoutError:
            self._answer(call_id, error={"message": "this took too long", "code": None})
        except (ExecServerError, OSError, ValueError) as exc:
            self._answer(call_id, error=error_facts(exc))
        except Exception:
            logger.exception("a call of the page failed: %s", name)
            self._answer(call_id, error={"message": "the program has failed", "code": None})
        else:
            self._answer(call_id, result=result)

    async def _result(self, name: str, words: CallWords) -> Any:
        if name == "shown.follow":
            return self._follow(words)
        if name == "shown.unfollow":
            return self._unfollow(words.number("channel", most=2**32 - 1))
        if name == "tab.hide":
            return self._hide(words.flag("hidden"))
        return await self._calls.find(name)(words)

    def _answer(self, call_id: int, **facts: Any) -> None:
        self._put(json.dumps({"id": call_id, **facts}))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Channels.

    def _follow(self, words: CallWords) -> dict[str, Any]:
        channel = words.number("channel", most=2**32 - 1)
        if channel in self._viewers or len(self._viewers) >= MAX_CHANNELS:
            raise InvalidRequest("this channel is in use, or there are too many")
        shown = self._calls.shown(words)

        def send(kind: FrameKind, data: bytes) -> None:
            self._put(_HEAD.pack(channel, _TO_TAB[kind]) + data)

        viewer = Viewer(send, shown.draw)
        viewer.hide(self._is_hidden)
        self._viewers[channel] = (shown, viewer)
        # The answer leaves before the first frame.
        asyncio.get_running_loop().call_soon(self._begin, channel)
        return shown.as_json()

    def _begin(self, channel: int) -> None:
        if channel in self._viewers:
            shown, viewer = self._viewers[channel]
            shown.add(viewer)

    def _unfollow(self, channel: int) -> None:
        if channel in self._viewers:
            shown, viewer = self._viewers.pop(channel)
            shown.remove(viewer)

    def _hide(self, is_hidden: bool) -> None:
        self._is_hidden = is_hidden
        for shown, viewer in self._viewers.values():
            viewer.hide(is_hidden)
            shown.moved()

    def _receive_bytes(self, data: bytes) -> None:
        if len(data) < _HEAD.size:
            return
        channel, kind = _HEAD.unpack_from(data)
        if channel not in self._viewers:
            return
        shown, viewer = self._viewers[channel]
        if kind == _DRAWN and len(data) == _HEAD.size + _COUNT.size:
            viewer.acknowledge(_COUNT.unpack_from(data, _HEAD.size)[0])
            shown.moved()
        elif kind == _TYPED and not shown.type(data[_HEAD.size :]):
            self._tell("inputRefused", {"id": shown.id})
