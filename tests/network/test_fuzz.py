"""Arbitrary bytes at both doors of a proxy: they end their own connection, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.limits import Limits
from exec_server.network import proxy as proxies
from exec_server.network import upstream
from exec_server.network.addresses import Address
from tests.requirements import requirement
from tests.support.proxied import OK, Proxy, dialled, get, origin, proxy, socks
from tests.support.wire import PATIENCE

HOST = "inside.test"
_RESET = struct.pack("ii", 1, 0)


class LiveProxy:
    """A proxy with two innocent connections through it, one at each door.

    Only the server of the test can be reached: the resolver knows one name, no address has an entry
    of its own, and the dialler refuses all other ports.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._open = contextlib.AsyncExitStack()
        self.complaints: list[str] = []

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(what)

    async def open(self) -> None:
        _, self.port = await self._open.enter_async_context(origin())
        self.proxy: Proxy = await self._open.enter_async_context(
            proxy(names={HOST: ["127.0.0.1"]}, domains={HOST: "allow"}, allowLocalBinding=True)
        )
        self._http = await self._open.enter_async_context(dialled(self.proxy.http))
        reader, writer, reply = await socks(self.proxy.any, HOST.encode(), self.port)
        assert reply[1] == 0
        self._open.callback(writer.close)
        self._tunnel = (reader, writer)

    async def close(self) -> None:
        await self._open.aclose()

    async def prove_alive(self) -> None:
        """The innocent connections still work, and so does a new one at each door."""
        async with asyncio.timeout(PATIENCE):
            reader, writer = self._tunnel
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.readexactly(len(OK)) == OK
            await self._prove_http(*self._http)
            async with dialled(self.proxy.http) as fresh:
                await self._prove_http(*fresh)
            _, writer, reply = await socks(self.proxy.any, b"other.test", 1)
            writer.close()
            assert reply[1] == 2
        assert self.complaints == []

    async def _prove_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(get(f"{HOST}:{self.port}"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        assert await reader.readexactly(2) == b"ok"

    async def told(self, port: int, data: bytes, cut: int, *, is_reset: bool) -> bytes:
        """Send *data* in two pieces and the end, or a reset; return the answer."""
        answer = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE), dialled(port) as (reader, writer):
                for piece in (data[:cut], data[cut:]):
                    writer.write(piece)
                    await writer.drain()
                if is_reset:
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    writer.transport.abort()
                else:
                    writer.write_eof()
                    answer = await reader.read()
        await self.prove_alive()
        return answer


@pytest.fixture(scope="module", params=[uvloop.new_event_loop, asyncio.new_event_loop])
def live(request: pytest.FixtureRequest) -> Iterator[LiveProxy]:
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    with asyncio.Runner(loop_factory=factory) as runner, pytest.MonkeyPatch.context() as patch:
        live = LiveProxy(runner)
        connect = upstream.connect

        async def guarded(
            addresses: Sequence[Address], port: int, *, limits: Limits
        ) -> socket.socket:
            if port != live.port:
                raise upstream.Unreachable
            return await connect(addresses, port, limits=limits)

        class Listener(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                live.complaints.append(self.format(record))

        patch.setattr(upstream, "connect", guarded)
        listener = Listener(logging.ERROR)
        watched = [proxies.logger, logging.getLogger("asyncio")]
        for logger in watched:
            logger.addHandler(listener)
        runner.run(live.open())
        yield live
        runner.run(live.close())
        for logger in watched:
            logger.removeHandler(listener)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that are nearly right."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 6))] = draw(st.binary(max_size=6))
    return bytes(data)


hosts = st.sampled_from([HOST, "other.test", "127.1", "[::1]", "a..b", "", "b\u00fccher.test"]).map(
    lambda host: f"{host}:%d".encode()
)
lines = st.sampled_from(
    [
        b"GET http://HOST/ HTTP/1.1",
        b"GET / HTTP/1.1",
        b"POST http://HOST/ HTTP/1.1",
        b"CONNECT HOST HTTP/1.1",
        b"HEAD http://u:p@HOST HTTP/1.0",
        b"OPTIONS * HTTP/1.1",
        b"GET https://HOST/ HTTP/1.1",
        b"GET ftp://HOST/ HTTP/1.1",
    ]
)
fields = st.lists(
    st.sampled_from(
        [
            b"Host: HOST",
            b"Host: other.test",
            b"Content-Length: 3",
            b"Content-Length: 99999999999999999999",
            b"Content-Length: -1",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip",
            b"Connection: close, host",
            b"Expect: 100-continue",
            b"Upgrade: websocket",
            b"X-Unix-Socket: /x",
            b" folded",
            b"Bad\0: x",
        ]
    ),
    max_size=4,
)
bodies = st.sampled_from(
    [b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"ffffffffffffffff\r\n", b"0\r\nA"]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    made = []
    for _ in range(draw(st.integers(1, 3))):
        head = b"\r\n".join([draw(lines), *draw(fields), b"", b""])
        made.append(head.replace(b"HOST", draw(hosts)) + draw(bodies))
    return b"".join(made)


names = st.sampled_from([HOST.encode(), b"other.test", b"a\0.test", b"\xff", b"127.1"]) | st.binary(
    max_size=255
)


@st.composite
def socks_requests(draw: st.DrawFn) -> bytes:
    name = draw(names)
    address = draw(
        st.sampled_from([b"\x01\x7f\0\0\1", b"\x04" + bytes(15) + b"\1", b"\x09"])
        | st.just(bytes((3, len(name))) + name)
    )
    greeting = draw(
        st.sampled_from([b"\x05\x01\x00", b"\x05\x02\x02\x00", b"\x05\x00", b"\x04\x01"])
    )
    command = bytes((5, draw(st.integers(0, 4)), draw(st.integers(0, 1))))
    port = draw(st.sampled_from([b"%d", b"\0\0", b"\0\x50", b"\0"]))
    return greeting + command + address + port + draw(st.binary(max_size=20))


cuts = st.integers(0, 60)


def at_port(data: bytes, live: LiveProxy, *, is_packed: bool) -> bytes:
    """Put the port of the server where the strategies have left a place for it."""
    port = live.port.to_bytes(2, "big") if is_packed else b"%d" % live.port
    return data.replace(b"%d", port)


@requirement("fuzz:proxy")
@given(st.binary(max_size=300) | damaged(requests()), cuts, st.booleans())
@example(b"\r\n" * 40_000, 5, False)
@example(b"GET http://inside.test/ HTTP/1.1\r\n" + b"A: b\r\n" * 12_000, 5, False)
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 1, False)
@example(b"CONNECT inside.test:%d HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", 40, True)
def test_whatever_comes_to_the_http_door_ends_only_itself(live, data, cut, is_reset):
    data = at_port(data, live, is_packed=False)
    answer = live.run(live.told(live.proxy.http, data, cut, is_reset=is_reset))
    assert answer == b"" or answer.startswith(b"HTTP/1.")


@requirement("fuzz:proxy")
@given(st.binary(max_size=300) | damaged(socks_requests()), cuts, st.booleans())
@example(b"\x05" + b"\xff" * 600, 1, False)
@example(b"\x05\x01\x00\x05\x01\x00\x03\xff" + b"\0" * 255 + b"\0\x50", 5, False)
def test_whatever_comes_to_the_socks_door_ends_only_itself(live, data, cut, is_reset):
    data = at_port(data, live, is_packed=True)
    answer = live.run(live.told(live.proxy.any, data, cut, is_reset=is_reset))
    assert answer == b"" or answer.startswith(b"\x05")


def datagram(kind_and_address: bytes) -> bytes:
    return b"\0\0\0" + kind_and_address + b"\0\x35payload"


datagrams = st.sampled_from(
    [
        datagram(b"\x01\x09\x09\x09\x09"),
        datagram(b"\x04" + bytes(15) + b"\1"),
        datagram(b"\x03\x0aother.test"),
        datagram(b"\x03\x04a\0.b"),
        datagram(b"\x03\xff" + b"a." * 127 + b"a"),
        datagram(b"\x03\x05\xff\xff\xff\xff\xff"),
        b"\0\0\0\x03",
        b"\0\0\x01\x01\x09\x09\x09\x09\0\x35fragment",
    ]
)


@requirement("fuzz:proxy")
@given(st.lists(st.binary(max_size=60) | damaged(datagrams), min_size=1, max_size=5))
def test_whatever_comes_as_a_datagram_ends_nothing(live, sent):
    async def send() -> None:
        _, writer, reply = await socks(live.proxy.any, b"0.0.0.0", 0, command=3)
        assert reply[1] == 0
        near = ("127.0.0.1", int.from_bytes(reply[8:], "big"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
            mine.bind(("127.0.0.1", 0))
            for data in sent:
                mine.sendto(data, near)
            # The association still reads: this destination is refused, which is reported.
            mine.sendto(datagram(b"\x03\x0alast.test."), near)
            async with asyncio.timeout(PATIENCE):
                while not any(event.host == "last.test" for event in live.proxy.client.told):
                    live.proxy.client.was_told.clear()
                    await live.proxy.client.was_told.wait()
        live.proxy.client.told.clear()
        writer.close()
        await live.prove_alive()

    live.run(send())
