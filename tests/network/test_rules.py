"""Patterns, their order, and addresses that are not public."""

from __future__ import annotations

import ipaddress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams
from exec_server.network import addresses, hosts, proxy_environment, rules
from exec_server.network.hosts import Host
from exec_server.network.rules import Rules, Ruling
from exec_server.protocol import network
from tests.requirements import requirement
from tests.support.proxied import wanted

PREFIX = "invalid network proxy config: "
NOT_PUBLIC = (
    "0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 169.254.1.1 172.31.255.255 192.0.0.9 192.0.2.1 "
    "192.168.1.1 198.19.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255 "
    ":: ::1 fc00::1 fe80::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 2002:7f00:1:: "
    "::127.0.0.1 2001:db8::1 fec0::1 ::ffff:0:127.0.0.1 64:ff9b:1::8.8.8.8 2001:0:7f00:1::1 "
    "2001:0:808:808:0:0:80ff:fffe 2606:4700::5efe:10.0.0.1 2002:a9fe:a9fe:: 168.63.129.16 "
    "fd00:ec2::254 3fff::1"
).split()
PUBLIC = "1.1.1.1 8.8.8.8 172.32.0.1 192.0.1.1 198.20.0.1 2606:4700::1111 ::ffff:8.8.8.8".split()

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
names = (
    st.lists(labels, min_size=2, max_size=4)
    .map(".".join)
    # A host that ends in a number is an address, or it is refused.
    .filter(lambda host: hosts.normalise_host(host) == host)
    .filter(lambda host: addresses.as_address(host) is None)
)


def judged(host, **members):
    proxy = msgspec.convert(wanted(**members), network.NetworkProxy)
    read = hosts.normalise_authority_host(host) if "[" in host else hosts.normalise_host(host)
    assert not isinstance(read, hosts.HostRefusal), host
    return Rules(proxy.proxy).judge(read)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("x.org", ["x.org", "X.Org.", "x.org"], ["a.x.org", "x.orgs"]),
        ("X.Org.:80", ["x.org"], ["y.org"]),
        ("*.x.org", ["a.x.org", "a.b.x.org"], ["x.org", "ax.org"]),
        ("**.x.org", ["x.org", "a.x.org", "a.b.x.org"], ["ax.org"]),
        ("*", ["x.org", "y"], ["localhost", "127.0.0.1", "10.0.0.1"]),
        ("[*]", ["x.org"], []),
        ("a*b.org", ["ab.org", "a.x.b.org"], ["b.org"]),
        ("a?.org", ["ab.org"], ["a.org", "abc.org"]),
        ("::1", ["::1", "[::1]"], ["::2"]),
        ("[0:0::1]:80", ["::1"], ["127.0.0.1"]),
        ("localhost", ["localhost", "LOCALHOST."], ["127.0.0.1"]),
        ("10.*", [], ["10.0.0.1"]),
    ],
)
@requirement("network/rules:patterns")
def test_patterns(pattern, inside, outside):
    for host in inside:
        assert judged(host, domains={pattern: "allow"}) is Ruling.ALLOW, host
    for host in outside:
        assert judged(host, domains={pattern: "allow"}) is not Ruling.ALLOW, host


@given(names, names)
@requirement("network/rules:patterns")
def test_two_stars_are_the_apex_and_one_star(apex, below):
    for host in (apex, f"{below}.{apex}", below):
        one = judged(host, domains={f"*.{apex}": "allow"}) is Ruling.ALLOW
        two = judged(host, domains={f"**.{apex}": "allow"}) is Ruling.ALLOW
        assert two == (one or host == apex)


@given(names, st.sampled_from(["allow", "none"]))
@requirement("network/rules:order")
def test_deny_beats_everything(host, rule):
    domains = {"*": rule, host.upper(): "deny"}
    assert judged(host, domains=domains, allowLocalBinding=True) is Ruling.DENIED


@given(names)
@requirement("network/rules:order")
def test_a_reviewed_host_is_asked_about_although_it_is_allowed(host):
    assert judged(host, domains={host: "allow"}) is Ruling.ALLOW
    assert judged(host, domains={host: "allow"}, reviewDomains=["*"]) is Ruling.ASK
    assert judged(host) is Ruling.ASK


@requirement("network/rules:order")
def test_local_comes_before_the_question_and_after_the_denial():
    assert judged("127.0.0.1", reviewDomains=["*"]) is Ruling.LOCAL
    assert judged("127.0.0.1", domains={"127.0.0.1": "deny"}) is Ruling.DENIED
    assert judged("127.0.0.1", domains={"127.0.0.1": "allow"}) is Ruling.ALLOW
    assert judged("127.0.0.1", domains={"127.*": "allow"}) is Ruling.LOCAL
    assert judged("127.0.0.1", allowLocalBinding=True) is Ruling.ASK


@requirement("network/rules:not-public")
def test_addresses_that_are_not_public():
    for text in NOT_PUBLIC:
        assert not addresses.is_public(ipaddress.ip_address(text)), text
    for text in PUBLIC:
        assert addresses.is_public(ipaddress.ip_address(text)), text


@given(st.ip_addresses(v=4))
@requirement("network/rules:not-public")
def test_an_address_is_as_public_as_the_one_inside_of_it(address):
    for form in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert addresses.is_public(ipaddress.ip_address(form)) == addresses.is_public(address)


@requirement("network/rules:one-resolution")
def test_one_address_that_is_not_public_is_enough():
    proxy = msgspec.convert(wanted(), network.NetworkProxy)
    some = [ipaddress.ip_address(text) for text in ("8.8.8.8", "10.0.0.1")]
    host = Host("x.org")
    assert Rules(proxy.proxy).judge_addresses(host, some) is Ruling.LOCAL
    assert Rules(proxy.proxy).judge_addresses(host, some[:1]) is Ruling.ALLOW
    proxy.proxy.allow_local_binding = True
    assert Rules(proxy.proxy).judge_addresses(host, some) is Ruling.ALLOW


DENIED_STAR = (
    "invalid value for network.denied_domains: {} (allowed exact hosts or scoped wildcards like "
    "*.example.com or **.example.com)"
)
BAD = [
    ({"domains": {"*": "deny"}}, DENIED_STAR.format("*")),
    ({"domains": {"**.*": "deny"}}, DENIED_STAR.format("**.*")),
    ({"domains": {"[*]": "deny"}}, DENIED_STAR.format("[*]")),
    ({"domains": {"": "allow"}}, "domain pattern is empty"),
    ({"domains": {"*.": "allow"}}, "domain pattern is empty"),
    ({"domains": {"**.": "deny"}}, "domain pattern is empty"),
    ({"domains": {"a b": "allow"}}, "unsupported domain pattern syntax: a b"),
    ({"domains": {"http://a": "allow"}}, "unsupported domain pattern syntax: http://a"),
    ({"domains": {"10.0.0.0/8": "allow"}}, "unsupported domain pattern syntax: 10.0.0.0/8"),
    ({"domains": {"{a,b}.c": "allow"}}, "unsupported domain pattern syntax: {a,b}.c"),
    ({"domains": {"**": "allow"}}, "unsupported repeated wildcard: **"),
    ({"domains": {"a.**.c": "allow"}}, "unsupported repeated wildcard: a.**.c"),
    (
        {"domains": {"[ab].c": "deny"}},
        "brackets are only supported for IPv6 literals or [*]: [ab].c",
    ),
    ({"reviewDomains": [""]}, "domain pattern is empty"),
    ({"enabled": False}, "executor-local network proxy launch requires an enabled proxy"),
    (
        {"unixSockets": {"x": "allow"}},
        "invalid network.allow_unix_sockets[0]: expected a NUL-free absolute path for Linux, "
        'got "x"',
    ),
]
GOOD = [
    {"domains": {"*": "none", "": "none"}},
    {"domains": {"x.*": "deny", "*.com": "deny"}},
    {"reviewDomains": ["*", "**.x"]},
    {"unixSockets": {"/x": "allow", "x": "deny"}},
]


@pytest.mark.parametrize(("members", "text"), BAD)
@requirement("network/start:config")
def test_a_configuration_that_means_nothing_is_refused(members, text):
    with pytest.raises(InvalidParams) as caught:
        rules.check("p", msgspec.convert(wanted(**members), network.NetworkProxy))
    assert caught.value.message == PREFIX + text


@pytest.mark.parametrize("members", GOOD)
@requirement("network/start:config")
def test_a_configuration_that_says_little_is_accepted(members):
    rules.check("p", msgspec.convert(wanted(**members), network.NetworkProxy))


@given(st.dictionaries(st.text(max_size=12), st.sampled_from(["allow", "deny"]), max_size=3))
@requirement("network/start:config")
def test_any_pattern_is_understood_or_refused(domains):
    try:
        made = Rules(msgspec.convert(wanted(domains=domains), network.NetworkProxy).proxy)
    except InvalidParams:
        return
    assert made.judge(Host("x.org")) in Ruling


@pytest.mark.parametrize(
    ("value", "moved"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:99"),
        ("http://u:p@localhost:1/x?y", "http://u:p@127.0.0.1:99/x?y"),
        ("localhost:8080", "127.0.0.1:99"),
        ("socks5h://[::1]", "socks5h://127.0.0.1:99"),
    ],
)
@requirement("network/enforced:named-proxies")
def test_a_moved_proxy_keeps_its_scheme_and_shape(value, moved):
    assert proxy_environment.named_proxies({"https_Proxy": value})
    assert proxy_environment.moved(value, 99) == moved


@requirement("network/enforced:named-proxies")
def test_the_default_port_of_a_proxy_is_that_of_its_scheme():
    named = proxy_environment.named_proxies(
        {"A": "x", "HTTP_PROXY": "http://localhost", "ALL_PROXY": "socks5://127.0.0.1"}
    )
    assert {name: endpoint.port for name, endpoint in named.items()} == {
        "HTTP_PROXY": 80,
        "ALL_PROXY": 1080,
    }
