"""Every way into the proxy reads hosts alike: SOCKS5, its datagrams, CONNECT, targets, Host."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import msgspec
import pytest

from exec_server.limits import Limits
from exec_server.network import upstream
from exec_server.network.addresses import Address
from exec_server.network.hosts import Host
from exec_server.network.proxy import ManagedProxy
from exec_server.protocol import network
from tests.requirements import requirement
from tests.support.proxied import Decides, answered, socks, wanted
from tests.support.wire import PATIENCE

RULES: dict[str, Any] = {
    "domains": {
        "**.good.test": "allow",
        "**.test": "allow",
        "bad.test": "deny",
        "9.9.9.9": "deny",
        "*": "allow",
    }
}
PUBLIC = ipaddress.ip_address("8.8.8.8")
# Name in SOCKS5, reason of the refusal.
REFUSED = [
    (b"evil.test\0.good.test", "not_allowed"),
    (b"bad.test\0", "not_allowed"),
    (b"x\n2026 forged.good.test", "not_allowed"),
    (b"\xff.good.test", "not_allowed"),
    (b"a..good.test", "not_allowed"),
    (b"[::1]", "not_allowed"),
    (b"fe80::1%lo", "not_allowed"),
    (b"", "not_allowed"),
    ("bad\u3002test".encode(), "denied"),
    ("\uff42ad.test".encode(), "denied"),
    ("b\u00adad.test".encode(), "denied"),
    (b"bad.test.", "denied"),
    (b"BAD.test", "denied"),
    (b"127.1", "not_allowed_local"),
    (b"0x7f000001", "not_allowed_local"),
    (b"2130706433", "not_allowed_local"),
    (b"0177.0.0.1", "not_allowed_local"),
    (b"::ffff:127.0.0.1", "not_allowed_local"),
    (b"64:ff9b:1::7f00:1", "not_allowed_local"),
    (b"2852039166", "not_allowed_local"),
    (b"9.9.2313", "denied"),
    (b"0x09090909", "denied"),
    (b"::ffff:9.9.9.9", "denied"),
    (b"leads-to-metadata.test", "not_allowed_local"),
    (b"leads-to-denied.test", "denied"),
    (b"leads-to-mapped.test", "denied"),
]
NAMES = {
    "leads-to-metadata.test": ["8.8.8.8", "169.254.169.254"],
    "leads-to-denied.test": ["8.8.8.8", "9.9.9.9"],
    "leads-to-mapped.test": ["::ffff:9.9.9.9"],
}


class Asked:
    """A proxy whose resolver and dialler are replaced: nothing of it reaches a network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **members: Any) -> None:
        self.resolved: list[str] = []
        self.dialled: list[tuple[list[Address], int]] = []
        self.client = Decides()
        self.managed = ManagedProxy(
            "p",
            msgspec.convert(wanted(**members), network.NetworkProxy),
            client=self.client,
            limits=Limits(),
            server_env={},
            resolver=self._resolve,
        )
        monkeypatch.setattr(upstream, "connect", self._connect)

    async def _resolve(self, host: Host) -> upstream.Resolution:
        self.resolved.append(host)
        try:
            found = [ipaddress.ip_address(host)]
        except ValueError:
            found = [ipaddress.ip_address(text) for text in NAMES.get(host, ["8.8.8.8"])]
        return upstream.Resolution(found, host)

    async def _connect(
        self, addresses: list[Address], port: int, *, limits: Limits
    ) -> socket.socket:
        self.dialled.append((addresses, port))
        raise upstream.Unreachable

    def __enter__(self) -> Asked:
        env = self.managed.listen()
        self.http = int(env["HTTP_PROXY"].rpartition(":")[2])
        self.any = int(env["ALL_PROXY"].rpartition(":")[2])
        return self

    def __exit__(self, *_: object) -> None:
        self.managed.close()


@pytest.mark.parametrize(("name", "reason"), REFUSED)
@requirement("security/network:one-form", "security/network:addresses")
async def test_socks_refuses_what_leads_to_a_refused_place(monkeypatch, name, reason):
    with Asked(monkeypatch, **RULES) as asked:
        _, writer, reply = await socks(asked.any, name, 80)
        writer.close()
    assert reply[:2] == b"\x05\x02"
    assert asked.dialled == []
    assert asked.client.reasons == [reason]
    assert asked.client.told[0].host.isprintable()


@pytest.mark.parametrize(("name", "reason"), REFUSED)
@requirement("security/network:one-form", "security/network:addresses")
async def test_datagrams_are_judged_alike(monkeypatch, name, reason):
    with Asked(monkeypatch, **RULES) as asked:
        async with asyncio.timeout(PATIENCE):
            _, writer, reply = await socks(asked.any, b"127.0.0.1", 0, command=3)
            near = ("127.0.0.1", int.from_bytes(reply[8:], "big"))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
                mine.bind(("127.0.0.1", 0))
                destination = bytes((0, 0, 0, 3, len(name))) + name + b"\0\x35"
                mine.sendto(destination + b"?", near)
                if not name:
                    # A destination without a name is not one; the next datagram still counts.
                    name = b"bad.test"
                    reason = "denied"
                    mine.sendto(bytes((0, 0, 0, 3, len(name))) + name + b"\0\x35?", near)
                await asked.client.was_told.wait()
            writer.close()
    assert asked.client.reasons == [reason]


AUTHORITIES = [
    (b"127.1", "not_allowed_local"),
    (b"0x7f.1", "not_allowed_local"),
    (b"017700000001", "not_allowed_local"),
    (b"2130706433", "not_allowed_local"),
    (b"[::ffff:127.0.0.1]", "not_allowed_local"),
    (b"[::ffff:7f00:1]", "not_allowed_local"),
    (b"[::7f00:1]", "not_allowed_local"),
    (b"[2002:7f00:1::]", "not_allowed_local"),
    (b"[2001:0:808:808:0:0:80ff:fffe]", "not_allowed_local"),
    (b"[64:ff9b:1::1]", "not_allowed_local"),
    (b"[fd00:ec2::254]", "not_allowed_local"),
    (b"0xa9fea9fe", "not_allowed_local"),
    (b"9.9.2313", "denied"),
    (b"[::ffff:9.9.9.9]", "denied"),
    (b"BAD.TEST.", "denied"),
    (b"leads-to-metadata.test", "not_allowed_local"),
    (b"leads-to-denied.test", "denied"),
]


@pytest.mark.parametrize(("name", "reason"), AUTHORITIES)
@requirement("security/network:one-form", "security/network:addresses")
async def test_http_refuses_the_same_in_all_its_forms(monkeypatch, name, reason):
    with Asked(monkeypatch, **RULES) as asked:
        for request in (
            b"GET http://%b/ HTTP/1.1\r\nHost: %b\r\n\r\n" % (name, name),
            b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % name,
            b"CONNECT %b:443 HTTP/1.1\r\n\r\n" % name,
        ):
            head, _ = await answered(asked.http, request)
            assert b" 403 " in head
    assert asked.dialled == []
    assert asked.client.reasons == [reason] * 3


NOT_HOSTS = (
    b"a..good.test [good.test] [127.0.0.1] [fe80::1%25lo] good.test%00 %6c 1.2.3.4.5 1.2.3.08 "
    b"[::1]x 256.0.0.1 -good.test good.test.."
).split()


@pytest.mark.parametrize("name", NOT_HOSTS)
@requirement("security/network:one-form")
async def test_http_answers_400_to_what_is_not_a_host(monkeypatch, name):
    with Asked(monkeypatch, **RULES) as asked:
        for request in (
            b"GET http://%b/ HTTP/1.1\r\nHost: %b\r\n\r\n" % (name, name),
            b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % name,
            b"CONNECT %b:443 HTTP/1.1\r\n\r\n" % name,
        ):
            assert (await answered(asked.http, request))[0].startswith(b"HTTP/1.1 400 ")
    assert asked.resolved == []


@requirement("security/network:one-form")
async def test_a_host_header_may_be_in_utf_8_and_is_judged_by_its_ascii_form(monkeypatch):
    with Asked(monkeypatch, **RULES) as asked:
        name = "\uff42ad\u3002test".encode()
        head, _ = await answered(asked.http, b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % name)
        assert b" 403 " in head
        head, _ = await answered(asked.http, b"GET / HTTP/1.1\r\nHost: \xff.test\r\n\r\n")
        assert b" 400 " in head
    assert asked.client.reasons == ["denied"]


@pytest.mark.parametrize(
    ("name", "asked_for", "address"),
    [
        (b"WWW.Good.Test.", "www.good.test", "8.8.8.8"),
        ("b\u00fccher.good.test".encode(), "xn--bcher-kva.good.test", "8.8.8.8"),
        (b"8.8.2056", "8.8.8.8", "8.8.8.8"),
        (b"::ffff:8.8.8.8", str(ipaddress.ip_address("::ffff:8.8.8.8")), "::ffff:8.8.8.8"),
    ],
)
@requirement("security/network:one-form", "security/network:pinned")
async def test_the_judged_form_is_resolved_once_and_its_address_is_dialled(
    monkeypatch, name, asked_for, address
):
    with Asked(monkeypatch, **RULES) as asked:
        _, writer, reply = await socks(asked.any, name, 443)
        writer.close()
    assert reply[:2] == b"\x05\x01"
    assert asked.resolved == [asked_for]
    assert asked.dialled == [([ipaddress.ip_address(address)], 443)]
    assert [event.host for event in asked.client.told] == [asked_for]
