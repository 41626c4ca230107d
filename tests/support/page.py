"""The page of `exec-server web` without a browser: its HTTP, and the socket of one tab."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from exec_server.client_urls import connect
from exec_server.transport.address import TcpAddress
from exec_server.web.page_program import PageOptions, ServedPage, serve_page
from exec_server.web.page_routes import KEY_HEADER
from exec_server.web.places import PlaceFacts

_HEAD = struct.Struct(">IB")
# Programs take long to start on a busy machine.
PATIENCE = 60.0
LOOPBACK = PageOptions(listen=TcpAddress("127.0.0.1", 0))


def place_of(url: str, *, name: str = "box", **options: Any) -> PlaceFacts:
    """An environment of the page at *url*; its id is `p0`."""

    def open_client(**keywords: Any) -> Any:
        return connect(url, client_name="a page", **options, **keywords)

    return PlaceFacts(id="p0", name=name, kind="url", where=url, is_default=True, open=open_client)


class Browser:
    """Requests as a browser of the person sends them."""

    def __init__(self, page: ServedPage, http: aiohttp.ClientSession) -> None:
        self.page = page
        self.http = http
        self.origin = page.url.rstrip("/")
        self.key = ""

    def url(self, path: str) -> str:
        return f"{self.origin}{path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Origin": self.origin, KEY_HEADER: self.key}

    async def sign_in(self, secret: str | None = None) -> aiohttp.ClientResponse:
        if secret is None:
            secret = self.page.new_link().partition("#token=")[2]
        answer = await self.http.post(
            self.url("/session"), json={"token": secret}, headers={"Origin": self.origin}
        )
        if answer.status == 200:
            self.key = (await answer.json())["key"]
        return answer

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[TabSocket]:
        async with self.http.ws_connect(
            self.url("/socket"), headers={"Origin": self.origin}, max_msg_size=0
        ) as socket:
            await socket.send_json({"key": self.key})
            tab = TabSocket(socket)
            try:
                await tab.event("welcome")
                yield tab
            finally:
                await tab.close()


class TabSocket:
    """The socket of one tab: calls, events, and channels whose output is collected."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.output: dict[int, bytes] = {}
        self.frames: dict[int, int] = {}
        self.received: dict[int, int] = {}
        # False leaves output unacknowledged, as a tab does that sleeps.
        self.draws = True
        self._changed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def close(self) -> None:
        await self._socket.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def close_code(self) -> int | None:
        return self._socket.close_code

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type == aiohttp.WSMsgType.BINARY:
                await self._receive(message.data)
            else:
                facts = json.loads(message.data)
                if "id" in facts:
                    self._answers.pop(facts["id"]).set_result(facts)
                else:
                    self.events.append((facts["event"], facts["facts"]))
            self._changed.set()
        self._changed.set()

    async def _receive(self, data: bytes) -> None:
        channel, kind = _HEAD.unpack_from(data)
        output = data[_HEAD.size :]
        if kind == 1:
            self.frames[channel] = self.frames.get(channel, 0) + 1
            self.output[channel] = b""
        self.output[channel] = self.output.get(channel, b"") + output
        self.received[channel] = self.received.get(channel, 0) + len(output)
        if self.draws:
            await self.drawn(channel, len(output))

    async def drawn(self, channel: int, count: int) -> None:
        await self._socket.send_bytes(_HEAD.pack(channel, 1) + struct.pack(">I", count))

    async def type(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(_HEAD.pack(channel, 0) + data)

    async def send(self, text: str) -> None:
        await self._socket.send_str(text)

    async def ask(self, name: str, /, **words: Any) -> dict[str, Any]:
        """The whole answer to a call."""
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "call": name, "words": words})
        async with asyncio.timeout(PATIENCE):
            facts: dict[str, Any] = await answer
        return facts

    async def call(self, name: str, /, **words: Any) -> Any:
        facts = await self.ask(name, **words)
        assert "error" not in facts, facts
        return facts["result"]

    async def refusal(self, name: str, /, **words: Any) -> str:
        facts = await self.ask(name, **words)
        text: str = facts["error"]["message"]
        return text

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until *condition* holds after something has come."""
        async with asyncio.timeout(PATIENCE):
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
        return found

    async def event(self, name: str, **members: Any) -> dict[str, Any]:
        """The first event of that name with these members."""

        def found() -> dict[str, Any] | None:
            for each, facts in self.events:
                if each == name and members.items() <= facts.items():
                    return facts
            return None

        facts: dict[str, Any] = await self.until(found)
        return facts

    async def shows(self, channel: int, text: bytes) -> None:
        await self.until(lambda: text in self.output.get(channel, b""))


@contextlib.asynccontextmanager
async def browsing(
    *places: PlaceFacts, options: PageOptions = LOOPBACK, **more: Any
) -> AsyncIterator[Browser]:
    """A page, and a browser that is not signed in yet."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        serve_page(options, places, **more) as page,
        aiohttp.ClientSession(
            cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=PATIENCE)
        ) as http,
    ):
        yield Browser(page, http)
