"""SOCKS5 through a proxy."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.limits import Limits
from exec_server.network import datagrams
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.proxied import OK, origin, proxy, said, socks
from tests.support.wire import PATIENCE

LOCAL: dict[str, Any] = {"domains": {"127.0.0.1": "allow", "bad.invalid": "deny"}}
REFUSED = b"\x05%c\x00\x01\x00\x00\x00\x00\x00\x00"


@requirement("network/socks:connect")
async def test_an_allowed_connection_is_a_tunnel(no_leaks):
    async with origin() as (_, port), proxy(**LOCAL) as made, asyncio.timeout(PATIENCE):
        reader, writer, reply = await socks(made.any, b"127.0.0.1", port)
        assert reply[:8] == b"\x05\x00\x00\x01\x7f\x00\x00\x01"
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(len(OK)) == OK
        writer.close()
        (event,) = made.client.told
    assert (event.protocol, event.host, event.port, event.reason) == (
        "socks5_tcp",
        "127.0.0.1",
        port,
        "allow",
    )


@pytest.mark.parametrize(
    ("host", "code", "reasons"),
    [
        (b"bad.invalid", 2, ["denied"]),
        (b"other.invalid", 2, ["not_allowed"]),
        (b"localhost", 2, ["not_allowed_local"]),
        (b"a b", 2, ["not_allowed"]),
        (b"127.0.0.1", 5, ["allow"]),
    ],
)
@requirement("network/socks:connect")
async def test_what_is_refused_is_told_by_a_number(no_leaks, host, code, reasons):
    async with proxy(**LOCAL) as made, asyncio.timeout(PATIENCE):
        reader, writer, reply = await socks(made.any, host, free_port())
        assert reply == REFUSED % code
        assert await reader.read() == b""
        writer.close()
        assert made.client.reasons == reasons


@requirement("network/http:limited")
async def test_limited_mode_has_nothing_for_socks(no_leaks):
    async with proxy(mode="limited", **LOCAL) as made:
        for port, told in ((80, ["mode_guard"]), (443, ["baseline_policy", "mode_guard"])):
            made.client.told.clear()
            _, writer, reply = await socks(made.any, b"127.0.0.1", port)
            writer.close()
            assert reply == REFUSED % 2
            assert [event.source for event in made.client.told] == told


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b""),
        (b"\x05\x01\x00\x05\x01\x00\x09", b"\x05\x00"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x01", b"\x05\x00" + REFUSED % 7),
    ],
)
@requirement("network/socks:connect")
async def test_other_protocols_and_commands_are_refused(no_leaks, data, answer):
    async with proxy(**LOCAL) as made:
        try:
            assert await said(made.any, data) == answer
        except ConnectionResetError:
            # Unread bytes turn our close into a reset.
            assert answer in (b"", b"\x05\x00")


@requirement("network/socks:connect")
async def test_a_client_that_wants_a_password_is_refused(no_leaks):
    async with proxy(**LOCAL) as made:
        assert await said(made.any, b"\x05\x01\x02") == b"\x05\xff"


@requirement("network/proxy:limits")
async def test_a_slow_greeting_ends_the_connection(no_leaks):
    async with proxy(limits=Limits(proxy_head_timeout=0.05)) as made:
        assert await said(made.any, b"\x05") == b""


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        self.transport.sendto(b"echo " + data, address)


@requirement("network/socks:datagrams")
async def test_datagrams_pass_where_they_are_allowed(no_leaks):
    loop = asyncio.get_running_loop()
    echo, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    there = echo.get_extra_info("sockname")[1]
    async with proxy(**LOCAL) as made, asyncio.timeout(PATIENCE):
        _, writer, reply = await socks(made.any, b"127.0.0.1", 0, command=3)
        assert reply[:8] == b"\x05\x00\x00\x01\x7f\x00\x00\x01"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
            mine.setblocking(False)
            mine.bind(("127.0.0.1", 0))
            await loop.sock_connect(mine, ("127.0.0.1", int.from_bytes(reply[8:], "big")))
            place = datagrams.header(("127.0.0.1", there))
            # Another destination is not allowed, and its datagram is dropped.
            await loop.sock_sendall(mine, datagrams.header(("127.0.0.2", there)) + b"lost")
            await loop.sock_sendall(mine, place + b"one")
            assert await loop.sock_recv(mine, 100) == place + b"echo one"
        writer.close()
        assert sorted((event.host, event.decision) for event in made.client.told) == [
            ("127.0.0.1", "allow"),
            ("127.0.0.2", "deny"),
        ]
        assert {event.protocol for event in made.client.told} == {"socks5_udp"}
    echo.close()


@requirement("network/socks:datagrams")
async def test_datagrams_are_refused_when_they_are_off(no_leaks):
    async with proxy(enableSocks5Udp=False, **LOCAL) as made:
        _, writer, reply = await socks(made.any, b"127.0.0.1", 0, command=3)
        writer.close()
        assert reply == REFUSED % 7


@given(st.ip_addresses(), st.integers(0, 65535), st.binary(max_size=40))
@requirement("network/socks:datagrams")
def test_a_datagram_is_read_as_it_is_written(address, port, payload):
    place = (str(address), port)
    assert datagrams.parse(datagrams.header(place) + payload) == (place, payload)


@given(st.binary(max_size=40))
@requirement("network/socks:datagrams")
def test_any_datagram_is_understood_or_dropped(data):
    parsed = datagrams.parse(data)
    assert parsed is None or 0 <= parsed[0][1] <= 65535
