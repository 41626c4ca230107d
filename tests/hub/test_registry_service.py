"""The registry as a process among others: addresses, certificates, proxies, and its end."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import msgspec
import pytest

from exec_server.errors import ConfigurationError
from exec_server.hub.registry_service import HubOptions, serve_hub
from exec_server.limits import DEFAULT_LIMITS
from exec_server.relay.frame import Data, RelayFrame, StreamId, encode
from exec_server.transport.address import TcpAddress
from tests.hub.conftest import Visitor, bring_online, transport_of
from tests.requirements import requirement
from tests.support.certificates import make_certificates


async def cannot_start(match, tmp_path, **options):
    with pytest.raises(ConfigurationError, match=match):
        async with serve_hub(HubOptions(state=str(tmp_path / "state"), **options)):
            pass


@requirement("hub/listen:closed")
async def test_a_public_address_needs_tls_or_a_proxy(tmp_path, no_leaks, visit):
    everywhere = TcpAddress("0.0.0.0", 0)
    await cannot_start("--behind-proxy", tmp_path, listen=everywhere)
    visitor = await visit(listen=everywhere, is_behind_proxy=True)
    assert visitor.hub.url.startswith("http://0.0.0.0:")


async def test_options_that_cannot_be_served(tmp_path, no_leaks):
    await cannot_start("go together", tmp_path, tls_certificate="cert.pem")
    missing = str(tmp_path / "missing.pem")
    await cannot_start("certificate", tmp_path, tls_certificate=missing, tls_key=missing)
    await cannot_start("cannot listen", tmp_path, listen=TcpAddress("192.0.2.1", 0),
                       is_behind_proxy=True)  # fmt: skip
    await cannot_start("public-url", tmp_path, public_url="registry.example.net")
    await cannot_start("audit log", tmp_path, audit_log=str(tmp_path / "no" / "log"))


@requirement("hub/tls")
async def test_tls_with_a_certificate_that_is_replaced_while_it_runs(visit, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        make_certificates(folder)
    shown = tmp_path / "shown.pem"
    shown.write_bytes((first / "server.pem").read_bytes())
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_revocation_seconds=0.01)
    visitor = await visit(tls_certificate=str(shown), tls_key=str(shown), limits=limits)

    async def is_trusted(folder):
        trust = ssl.create_default_context(cafile=folder / "authority.pem")
        try:
            async with (
                aiohttp.ClientSession() as web,
                web.get(visitor.hub.url + "/healthz", ssl=trust) as response,
            ):
                return response.status == 200
        except aiohttp.ClientConnectorCertificateError:
            return False

    assert visitor.hub.url.startswith("https://")
    assert await is_trusted(first)
    # A file that is half written is ignored.
    shown.write_bytes((second / "server.pem").read_bytes()[:300])
    assert await is_trusted(first)
    shown.write_bytes((second / "server.pem").read_bytes())
    async with asyncio.timeout(60):
        while not await is_trusted(second):
            pass
    trust = ssl.create_default_context(cafile=second / "authority.pem")
    _, secret = await visitor.token("enrol")
    body = {"security_profile": "x"}
    path = "/cloud/environment/a/register"
    answer = await visitor.ask("POST", path, secret, body=body, ssl=trust)
    assert answer.code == "unsupported_profile"


@requirement("hub/proxy")
async def test_behind_a_proxy_its_word_counts_and_otherwise_not(visit, tmp_path):
    forwarded = {"X-Forwarded-For": "203.0.113.7, 198.51.100.9", "X-Forwarded-Proto": "https"}
    for is_behind_proxy, scheme, address in (
        (False, "ws", "127.0.0.1"),
        (True, "wss", "198.51.100.9"),
    ):
        state = str(tmp_path / f"{scheme}.sqlite3")
        visitor = await visit(is_behind_proxy=is_behind_proxy, state=state)
        _, secret = await visitor.token("enrol")
        key = visitor.key.public.to_object()
        body = {"security_profile": "noise_hybrid_ik_v1", "executor_public_key": key}
        path = "/cloud/environment/a/register"
        answer = await visitor.ask("POST", path, secret, body=body, headers=forwarded)
        assert answer.body["url"].startswith(f"{scheme}://127.0.0.1:")
        (event,) = await visitor.hub.store.events()
        assert event.address == address


async def test_urls_begin_as_the_registry_is_called_by_others(visit):
    visitor = await visit(public_url="https://registry.example.net/base/")
    _, secret = await visitor.token("enrol")
    answer = await visitor.register("a", secret)
    assert answer.body["url"].startswith("wss://registry.example.net/base/rendezvous/a?")


@requirement("hub/listen:silent")
async def test_who_connects_and_says_nothing_is_dropped(visit):
    limits = msgspec.structs.replace(DEFAULT_LIMITS, http_head_timeout=0.05)
    visitor = await visit(limits=limits)
    host, _, port = visitor.hub.url.removeprefix("http://").rpartition(":")
    for said in (b"", b"GET /healthz HTTP/1.1\r\nHos"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(said)
        async with asyncio.timeout(60):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
    # A client that has sent a request stays connected.
    pair = await bring_online(visitor)
    closing = asyncio.ensure_future(pair.executor.receive())
    done, _ = await asyncio.wait([closing], timeout=0.15)
    assert not done
    closing.cancel()
    await asyncio.wait([closing])


@requirement("hub/socket:draining")
async def test_it_stops_soon_although_no_client_reads(tmp_path, no_leaks):
    data = encode(RelayFrame(StreamId("s"), Data(0, bytes(200_000))))
    # A stop that waited for a write would not end.
    limits = msgspec.structs.replace(DEFAULT_LIMITS, hub_write_timeout=3600.0)
    async with aiohttp.ClientSession() as web:
        async with serve_hub(HubOptions(state=str(tmp_path / "state")), limits=limits) as hub:
            visitor = Visitor(hub, web)
            pair = await bring_online(visitor)
            harness = await pair.open_harness()
            transport_of(pair.executor).pause_reading()
            sending = asyncio.ensure_future(_send_for_ever(harness, data))
            while hub.rendezvous.memory.used < 1 << 20:
                assert (await visitor.ask("GET", "/healthz")).status == 200
        sending.cancel()
        await asyncio.wait([sending])
        visitor.drop_all()


async def _send_for_ever(socket, data):
    while True:
        await socket.send_bytes(data)


@requirement("hub/cluster:shared-state")
async def test_nodes_with_states_of_their_own_are_refused(tmp_path):
    await cannot_start("postgresql://", tmp_path, bus="nats://127.0.0.1:1")
