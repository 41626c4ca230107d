"""The one form of a host: what is judged is what the C library would reach."""

from __future__ import annotations

import ipaddress
import socket

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.network.addresses import as_address, is_metadata, is_public, reached
from exec_server.network.hosts import (
    Host,
    HostRefusal,
    normalise_authority_host,
    normalise_host,
)
from exec_server.network.rules import Rules, Ruling
from exec_server.protocol import network
from tests.requirements import requirement
from tests.support.proxied import wanted

# Texts that are near to addresses: most are in some spelling that a C library knows.
digits = st.one_of(
    st.integers(0, 300).map(str),
    st.integers(0, 1 << 33).map(str),
    st.integers(0, 1 << 33).map(hex),
    st.integers(0, 1 << 33).map(lambda number: f"0X{number:X}"),
    st.integers(0, 1 << 33).map(lambda number: f"0{number:o}"),
    st.sampled_from(["", "0x", "08", "00", "+1", "-1", "1_0", " 1", "1 ", "\u0661", "\uff11"]),
)
near_ipv4 = st.lists(digits, min_size=1, max_size=5).map(".".join)
near_ipv6 = st.one_of(
    st.ip_addresses(v=6).map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded.upper()),
    st.ip_addresses(v=4).map(lambda address: f"::ffff:{address}"),
    st.text("0123456789abcdefABCDEF:.%", max_size=20),
)
labels = st.text(
    st.one_of(st.sampled_from("abcXYZ019-_"), st.characters(exclude_categories=["Cs"])), max_size=9
)
near_names = st.lists(labels, min_size=1, max_size=4).map(".".join)


def numeric(text):
    """Return the address that the C library takes *text* for, without asking any server."""
    try:
        found = socket.getaddrinfo(text, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError, ValueError):
        return None
    return ipaddress.ip_address(found[0][4][0])


def rules_of(**members):
    return Rules(msgspec.convert(wanted(**members), network.NetworkProxy).proxy)


@given(st.one_of(near_ipv4, near_ipv6, near_names))
@example("127.1")
@example("0x7f000001")
@example("017700000001")
@example("127.0.0.1.")
@example("fe80::1%lo")
@example("0x")
@requirement("security/network:one-form")
def test_what_the_c_library_takes_for_an_address_is_that_address(text):
    host = normalise_host(text)
    expected = numeric(text)
    if expected is not None:
        assert isinstance(host, HostRefusal) or as_address(host) == expected
    if not isinstance(host, HostRefusal):
        # The resolver gets the normal form. It must not take it for anything else.
        assert numeric(host) == as_address(host)


@given(st.ip_addresses(v=4))
@requirement("security/network:one-form")
def test_no_spelling_of_an_ipv4_address_is_missed(address):
    number = int(address)
    parts = [number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255]
    for text in (
        f"{number}",
        f"{number:#x}",
        f"0{number:o}",
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]:#x}.{parts[1]}.0{number & 0xFFFF:o}",
        ".".join(map(hex, parts)),
        ".".join(f"0{part:o}" for part in parts),
        f"{address}.",
        str(address).translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)}),
        str(address).replace(".", "\u3002"),
        str(address).replace(".", "\uff0e"),
    ):
        assert normalise_host(text) == str(address), text


@given(st.one_of(near_ipv4, near_ipv6, near_names, st.text(max_size=300)))
@requirement("security/network:one-form")
def test_the_normal_form_is_plain_and_final(text):
    host = normalise_host(text)
    if isinstance(host, HostRefusal):
        assert host.shown.isprintable()
        assert len(host.shown) <= 300
        return
    assert host.isascii()
    assert host.isprintable()
    assert 0 < len(host) <= 253
    assert host == host.lower()
    assert not set(host) & set("[]%/\\@ ")
    assert normalise_host(host) == host
    assert normalise_host(host.upper().encode()) == host


@given(near_names)
@requirement("security/network:one-form")
def test_the_idna_codec_of_python_finds_nothing_else_in_a_name(text):
    """The codec is what `getaddrinfo` of Python applies to a name that is not bytes."""
    host = normalise_host(text)
    if not isinstance(host, HostRefusal):
        assert host.encode("idna") == host.encode()


@pytest.mark.parametrize(
    "text",
    [
        "bad.test",
        "BAD.Test.",
        "bad\u3002test",
        "bad\uff0etest",
        "bad\uff61test",
        "\uff42\uff41\uff44.test",
        "b\u00adad.test",
        "ba\u200bd.test",
        "\u212c\u212d.test".replace("\u212c", "b").replace("\u212d", "ad"),
        "\u24d1\u24d0\u24d3.test",
        "\U0001d41bad.test",
    ],
)
@requirement("security/network:one-form")
def test_all_spellings_of_a_denied_name_are_denied(text):
    judge = rules_of(domains={"bad.test": "deny", "*": "allow"}).judge
    host = normalise_host(text)
    assert host == "bad.test"
    assert judge(Host(str(host))) is Ruling.DENIED
    assert normalise_host(text.encode()) == host


@pytest.mark.parametrize(
    "raw",
    [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "a\0.b",
        "evil.test\0.good.test",
        "a\n.b",
        "a\x7f.b",
        "a b",
        " a",
        "a ",
        "a\t",
        "a%62",
        "%00.good.test",
        "[::1]",
        "[a]",
        "a]",
        "fe80::1%eth0",
        "::1%1",
        "::ffff:127.0.0.1%lo",
        "::ffff:127.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.08",
        "4294967296",
        "0x",
        "1.2.3.0x",
        "a/b",
        "a@b",
        "a:80",
        "a\\b",
        "-a.b",
        "a-.b",
        "x" * 64,
        ".".join(["x" * 63] * 4),
        "a." * 127 + "ab",
        "\u2603 .net",
        "\ufffd.net",
        "a\u202e.test",
        "\u0300a.test",
        b"\xff.test",
        b"a\xc3.test",
    ],
)
@requirement("security/network:one-form")
def test_what_is_not_a_host_is_refused(raw):
    assert isinstance(normalise_host(raw), HostRefusal)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[::1]", "::1"),
        ("[0:0::1]", "::1"),
        ("127.1", "127.0.0.1"),
        ("b\u00fccher.test", "xn--bcher-kva.test"),
        ("fa\u00df.test", "xn--fa-hia.test"),
        ("a_b.test", "a_b.test"),
        ("::1", None),
        ("[127.0.0.1]", None),
        ("[a]", None),
        ("[::1", None),
        ("[[::1]]", None),
        ("[fe80::1%25lo]", None),
        ("[::1]x", None),
    ],
)
@requirement("security/network:one-form")
def test_brackets_are_for_ipv6_in_a_url(text, host):
    read = normalise_authority_host(text)
    assert read == host if host is not None else isinstance(read, HostRefusal)


def forms(address):
    """Addresses of IPv6 that carry the IPv4 *address*."""
    number = int(address)
    teredo_client = ~number & 0xFFFF_FFFF
    return [
        ipaddress.IPv6Address(value)
        for value in (
            0xFFFF << 32 | number,
            number,
            0xFFFF << 48 | number,
            int(ipaddress.IPv6Address("64:ff9b::")) | number,
            int(ipaddress.IPv6Address("64:ff9b:1::")) | number,
            # RFC 6052 with prefixes of 48, 56 and 64 bits.
            int(ipaddress.IPv6Address("64:ff9b:1::"))
            | (number >> 16) << 64
            | (number & 0xFFFF) << 40,
            int(ipaddress.IPv6Address("64:ff9b:1::"))
            | (number >> 24) << 64
            | (number & 0xFFFFFF) << 32,
            int(ipaddress.IPv6Address("64:ff9b:1:1::")) | number << 24,
            0x2002 << 112 | number << 80 | 1,
            0x20010000 << 96 | number << 64 | 0xF7F7_F7F7,
            0x20010000 << 96 | 0x0808_0808 << 64 | teredo_client,
            int(ipaddress.IPv6Address("2606:4700::")) | 0x5EFE << 32 | number,
        )
    ]


@given(st.ip_addresses(v=4).filter(int))
@requirement("security/network:carried")
def test_an_address_is_judged_by_the_one_that_it_carries(address):
    rules = rules_of(domains={str(address): "deny", "*": "allow"}, allowLocalBinding=True)
    for form in forms(address):
        assert address in reached(form), form
        assert rules.judge(Host(str(form))) is Ruling.DENIED, form
        assert rules.judge_addresses(Host("x.org"), [form]) is Ruling.DENIED, form
        if not is_public(address):
            assert not is_public(form), form
            closed = rules_of(domains={"*": "allow"})
            assert closed.judge(Host(str(form))) is Ruling.LOCAL
            assert closed.judge_addresses(Host("x.org"), [form]) is Ruling.LOCAL


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "::ffff:0.0.0.0", "64:ff9b::"])
@requirement("security/network:carried")
def test_an_unspecified_address_is_the_loopback(text):
    rules = rules_of(domains={"127.0.0.1": "deny", "::1": "deny"}, allowLocalBinding=True)
    assert rules.judge(Host(str(ipaddress.ip_address(text)))) is Ruling.DENIED


@pytest.mark.parametrize(
    "pattern", ["1.2.3.4", "0x1020304", "1.2.772", "1.2.*", "[::ffff:1.2.3.4]"]
)
@requirement("security/network:addresses")
def test_a_denied_address_is_denied_by_every_name(pattern):
    for local in (False, True):
        rules = rules_of(domains={pattern: "deny", "*": "allow"}, allowLocalBinding=local)
        found = [ipaddress.ip_address("9.9.9.9"), ipaddress.ip_address("::ffff:1.2.3.4")]
        assert rules.judge_addresses(Host("x.org"), found[:1]) is Ruling.ALLOW
        assert rules.judge_addresses(Host("x.org"), found) is Ruling.DENIED


@pytest.mark.parametrize(
    "text", ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "168.63.129.16"]
)
@requirement("security/network:addresses")
def test_metadata_services_are_not_local_hosts(text):
    address = ipaddress.ip_address(text)
    assert is_metadata(address)
    for local in (False, True):
        rules = rules_of(domains={"*": "allow"}, allowLocalBinding=local)
        assert rules.judge(Host(str(address))) is Ruling.LOCAL
        assert rules.judge_addresses(Host("x.org"), [address]) is Ruling.LOCAL
        rules = rules_of(domains={str(address): "allow"}, allowLocalBinding=local)
        assert rules.judge(Host(str(address))) is Ruling.ALLOW
        assert rules.judge_addresses(Host(str(address)), [address]) is Ruling.ALLOW


@requirement("security/network:addresses")
def test_localhost_is_the_loopback_and_nothing_else():
    rules = rules_of(domains={"localhost": "allow"})
    for text, ruling in (
        ("127.0.0.1", Ruling.ALLOW),
        ("::1", Ruling.ALLOW),
        ("10.0.0.1", Ruling.LOCAL),
        ("169.254.169.254", Ruling.LOCAL),
    ):
        found = [ipaddress.ip_address(text)]
        assert rules.judge_addresses(Host("localhost"), found) is ruling
