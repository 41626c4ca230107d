"""What streams may reach, and where they may listen."""

from __future__ import annotations

import ipaddress

import pytest

from exec_server.errors import ConfigurationError, FloorRefused, InternalError
from exec_server.network.hosts import Host
from exec_server.server.floors.host_floor import HostFloor
from exec_server.server.streams import dialling
from exec_server.server.streams.stream_rules import StreamRules, is_forbidden
from tests.requirements import requirement


def allows(rules, address, port=80):
    return StreamRules(rules).allowed_address(ipaddress.ip_address(address), port)


@requirement("streams/rules:loopback")
def test_by_default_only_the_loopback_is_allowed():
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"):
        assert allows([], address), address
    for address in ("10.0.0.1", "8.8.8.8", "fd00::1", "64:ff9b::7f00:1", "2002:7f00:1::"):
        assert not allows([], address), address
    assert not allows([], "::ffff:10.0.0.1")
    assert not allows(["none"], "127.0.0.1")


@requirement("streams/rules:allow")
def test_rules_add_hosts_networks_and_ports():
    rules = ["10.0.0.0/8:5432", "db.example.com:5432", "*.test:8000-8100", "[fd00::/8]:*"]
    assert allows(rules, "10.1.2.3", 5432) and not allows(rules, "10.1.2.3", 5433)
    assert not allows(rules, "11.0.0.1", 5432)
    assert allows(rules, "fd00::1", 9) and not allows(rules, "fe00::1", 9)
    found = StreamRules(rules)
    assert found.allows_name("db.example.com", 5432)
    assert not found.allows_name("db.example.com", 80)
    assert found.allows_name("a.test", 8050) and not found.allows_name("a.test", 8101)
    assert allows(["*:443"], "8.8.8.8", 443)


@requirement("streams/rules:allow")
def test_rules_for_unix_sockets_and_listeners():
    rules = StreamRules(["unix:/run/app/*", "listen:0.0.0.0:8000-8001", "listen:10.0.0.0/8:*"])
    rules.check_path("/run/app/x.sock")
    with pytest.raises(FloorRefused, match="unix:/run/other"):
        rules.check_path("/run/other")
    for path in ("/run/app/../docker.sock", "/run/app/..", "/run/app/x\0y"):
        with pytest.raises(FloorRefused, match="leads elsewhere"):
            rules.check_path(path)
    rules.check_path("/run/app/..x")
    rules.check_listening(ipaddress.ip_address("0.0.0.0"), 8001)
    rules.check_listening(ipaddress.ip_address("10.1.1.1"), 1)
    rules.check_listening(ipaddress.ip_address("127.0.0.1"), 0)
    for address, port in (
        ("0.0.0.0", 8002),
        ("::ffff:0.0.0.0", 8002),
        ("::", 8000),
        ("192.168.1.1", 8000),
    ):
        with pytest.raises(FloorRefused, match="listen:"):
            rules.check_listening(ipaddress.ip_address(address), port)


@requirement("streams/rules:allow")
@pytest.mark.parametrize(
    "rule",
    ["", "host", "host:", ":80", "host:x", "host:1-", "host:9-1", "host:70000", "unix:x", "a b:1"],
)
def test_a_rule_that_cannot_be_read_is_refused(rule):
    with pytest.raises(ConfigurationError):
        StreamRules([rule])


@requirement("streams/rules:never")
def test_link_local_and_metadata_addresses_are_forbidden():
    for address in (
        *("169.254.169.254", "169.254.1.1", "fe80::1", "100.100.100.200", "fd00:ec2::254"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "168.63.129.16", "224.0.0.1"),
    ):
        assert is_forbidden(ipaddress.ip_address(address)), address
    assert not is_forbidden(ipaddress.ip_address("127.0.0.1"))


async def refusal(monkeypatch, address, *, rules=("*:*",), floor=None, host="name.test"):
    """The error for a name that leads to *address*; connecting to it fails the test."""

    async def resolve(host, port, *, seconds):
        return [ipaddress.ip_address(each) for each in address.split()]

    async def connected(family, address, seconds):
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(dialling, "resolve", resolve)
    monkeypatch.setattr(dialling, "_connected", connected)
    with pytest.raises(Exception) as caught:
        await dialling.dial_tcp(Host(host), 80, rules=StreamRules(rules), seconds=1, floor=floor)
    return caught.value


@requirement("streams/rules:never")
@pytest.mark.one_loop
async def test_a_name_that_leads_to_a_forbidden_address_is_refused(monkeypatch):
    for address in ("169.254.169.254", "127.0.0.1 fe80::1", "::ffff:169.254.169.254"):
        assert isinstance(await refusal(monkeypatch, address), FloorRefused)
    assert isinstance(await refusal(monkeypatch, "10.0.0.1", rules=()), FloorRefused)
    allowed = await refusal(monkeypatch, "10.0.0.1")
    assert isinstance(allowed, InternalError) and allowed.errno == 111


@requirement("streams/rules:floors")
@pytest.mark.one_loop
async def test_a_pattern_of_a_floor_does_not_lead_to_this_machine(monkeypatch):
    wide = HostFloor(("*.test",), principal="alice")
    exact = HostFloor(("name.test",), principal="alice")
    assert isinstance(await refusal(monkeypatch, "127.0.0.1", floor=wide), FloorRefused)
    reached = await refusal(monkeypatch, "127.0.0.1", floor=exact)
    assert isinstance(reached, InternalError)
    other = await refusal(monkeypatch, "127.0.0.1", floor=exact, host="other.test")
    assert isinstance(other, FloorRefused)


@pytest.mark.one_loop
async def test_a_name_without_addresses_is_an_error_of_the_system():
    with pytest.raises(InternalError) as caught:
        await dialling.resolve(Host("does-not-exist.invalid"), 80, seconds=10)
    assert caught.value.errno is not None
