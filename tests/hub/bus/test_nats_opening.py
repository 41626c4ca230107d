"""How a NATS bus is opened, and the errors if it cannot be opened."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ConfigurationError
from exec_server.hub.bus.nats_bus import NatsBus
from exec_server.hub.bus.nats_url import parse_nats_url
from exec_server.limits import DEFAULT_LIMITS
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.nats import NatsCluster
from tests.support.ports import free_ports

LIMITS = msgspec.structs.replace(DEFAULT_LIMITS, bus_pause=0.02, bus_start_timeout=5.0)
SECRET = "s3cret"
PASSWORDS = f'authorization {{ users: [{{ user: "us", password: "{SECRET}" }}] }}'


async def refusal(url: str, **options) -> str:
    options.setdefault("limits", LIMITS)
    with pytest.raises(ConfigurationError) as caught:
        await NatsBus.open(url, name="test", **options)
    assert SECRET not in repr(caught.value)
    return str(caught.value)


@requirement("hub/bus/nats:startup")
async def test_servers_that_are_not_there_are_named(no_leaks):
    hosts = [f"127.0.0.1:{port}" for port in free_ports(2)]
    limits = msgspec.structs.replace(LIMITS, bus_start_timeout=0.1)
    said = await refusal(f"nats://us:{SECRET}@{','.join(hosts)}", limits=limits)
    assert all(host in said for host in hosts)
    assert "onnect" in said


@requirement("hub/bus/nats:startup")
async def test_servers_without_jetstream_are_refused(tmp_path, no_leaks):
    with NatsCluster(tmp_path, store=False) as cluster:
        assert "JetStream" in await refusal(cluster.url)


@requirement("hub/bus/nats:startup")
async def test_a_wrong_password_is_refused_at_once(tmp_path, no_leaks, caplog):
    with NatsCluster(tmp_path, config=PASSWORDS.replace(SECRET, "another")) as cluster:
        url = f"nats://us:{SECRET}@{cluster.hosts[0]}"
        assert "does not let us in" in await refusal(url)
        assert "does not let us in" in await refusal(f"nats://{SECRET}@{cluster.hosts[0]}")
    assert SECRET not in caplog.text


@requirement("hub/bus/nats:startup", "hub/bus/nats:url")
async def test_a_right_password_lets_us_in_and_is_not_shown(tmp_path, no_leaks, caplog):
    caplog.set_level("DEBUG")
    with NatsCluster(tmp_path, config=PASSWORDS) as cluster:
        bus = await NatsBus.open(
            f"nats://us:{SECRET}@{cluster.hosts[0]}", name="test", limits=LIMITS
        )
        assert await bus.compare_and_set("owner", b"us", after=0)
        assert SECRET not in repr(bus)
        await bus.close()
    assert SECRET not in caplog.text


@requirement("hub/bus/nats:startup")
@pytest.mark.one_loop
async def test_credentials_that_cannot_be_used_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "credentials"
    path.write_text(SECRET)
    monkeypatch.setitem(sys.modules, "nkeys", None)
    assert "[cluster]" in await refusal("nats://127.0.0.1", credentials=str(path))
    monkeypatch.setitem(sys.modules, "nkeys", ModuleType("nkeys"))
    assert "NKEY" in await refusal("nats://127.0.0.1", credentials=str(path))
    assert "read" in await refusal("nats://127.0.0.1", credentials=str(tmp_path / "missing"))


@requirement("hub/bus/nats:startup")
@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">"])
async def test_a_registry_is_called_by_a_word(name):
    with pytest.raises(ValueError, match="is not a word"):
        await NatsBus.open("nats://127.0.0.1", name=name)


@requirement("hub/bus/nats:tls")
async def test_nothing_is_said_to_a_server_that_does_not_encrypt(no_leaks):
    heard = asyncio.Event()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO %s\r\n" % json.dumps({"max_payload": 1024}).encode())
        if await reader.read():
            heard.set()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(pretend, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await refusal(f"tls://us:{SECRET}@127.0.0.1:{port}")
    assert "not secure" in said
    assert not heard.is_set()


@requirement("hub/bus/nats:tls")
@pytest.mark.one_loop
async def test_only_a_server_that_is_known_is_talked_to(tmp_path, no_leaks):
    authority = make_certificates(tmp_path).authority
    pem = tmp_path / "server.pem"
    config = f'tls {{ cert_file: "{pem}", key_file: "{pem}" }}'
    with NatsCluster(tmp_path, config=config) as cluster:
        url = f"tls://{cluster.hosts[0]}"
        assert "not secure" in await refusal(url)
        context = ssl.create_default_context(cafile=str(authority))
        bus = await NatsBus.open(url, name="test", tls=context, limits=LIMITS)
        assert await bus.compare_and_set("owner", b"us", after=0)
        await bus.close()


@requirement("hub/bus/nats:url")
def test_a_url_names_servers_and_who_we_are():
    url = parse_nats_url("nats://us:p%40ss@one:1,two,[::1]:3/")
    assert url.servers == ("nats://one:1", "nats://two:4222", "nats://[::1]:3")
    assert (url.user, url.password, url.token, url.is_tls) == ("us", "p@ss", None, False)
    url = parse_nats_url("tls://token@one")
    assert url.servers == ("tls://one:4222",)
    assert (url.user, url.password, url.token, url.is_tls) == (None, None, "token", True)
    url = parse_nats_url("nats://one:1")
    assert (url.user, url.password, url.token) == (None, None, None)


@requirement("hub/bus/nats:url")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "one:4222",
        "http://one",
        "nats://",
        "nats://@one",
        "nats://:s3cret@one",
        "nats://us:s3cret@one:port",
        "nats://us:s3cret@one:99999",
        "nats://us:s3cret@one/path",
        "nats://us:s3cret@one?query",
        "nats://us:s3cret@one,,two",
        "nats://us:s3cret@one,us:s3cret@two",
        "nats://us:s3cret@one two",
    ],
)
def test_what_is_no_url_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigurationError) as caught:
        parse_nats_url(url)
    assert SECRET not in str(caught.value)


@requirement("hub/bus/nats:url")
@given(st.text())
def test_any_text_is_a_url_or_a_configuration_error(text):
    for url in (text, f"nats://{text}"):
        try:
            parsed = parse_nats_url(url)
        except ConfigurationError:
            continue
        for secret in (parsed.password, parsed.token):
            assert not secret or secret in "".join(parsed.servers) or secret not in repr(parsed)
