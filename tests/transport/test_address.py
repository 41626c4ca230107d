"""The values of --listen."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ConfigurationError, ExecServerListenUrlParseError
from exec_server.transport.address import (
    DEFAULT_LISTEN_URL,
    StdioAddress,
    TcpAddress,
    UnixAddress,
    parse_listen_url,
)
from tests.requirements import requirement

ports = st.integers(0, 65535)


def refusal(url: str) -> str:
    with pytest.raises(ExecServerListenUrlParseError) as caught:
        parse_listen_url(url)
    return str(caught.value)


@requirement("listen:default")
def test_the_default_is_a_free_port_of_this_machine():
    assert parse_listen_url(DEFAULT_LISTEN_URL) == TcpAddress("127.0.0.1", 0)


@requirement("listen:ws-ip-port")
@given(st.ip_addresses(), ports)
def test_every_literal_address_is_accepted_and_its_url_reads_back(ip, port):
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    address = parse_listen_url(f"ws://{host}:{port}")
    assert isinstance(address, TcpAddress)
    assert ipaddress.ip_address(address.host) == ip
    assert address.port == port
    assert parse_listen_url(address.url) == address


@requirement("listen:ws-ip-port")
@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("ws://127.0.0.1:41181", "127.0.0.1", 41181),
        ("ws://0.0.0.0:00", "0.0.0.0", 0),
        ("ws://127.0.0.1:000000047123", "127.0.0.1", 47123),
        ("ws://[::1]:0", "::1", 0),
        ("ws://[0:0:0:0:0:0:0:1]:5", "::1", 5),
        ("ws://[::FFFF:7F00:1]:5", "::ffff:127.0.0.1", 5),
        ("ws://[fe80::1%2]:5", "fe80::1%2", 5),
    ],
)
def test_an_address_is_kept_in_its_usual_spelling(url, host, port):
    assert parse_listen_url(url) == TcpAddress(host, port)


@requirement("listen:url-brackets")
def test_an_ipv6_address_has_brackets_in_its_url():
    assert TcpAddress("::1", 45283).url == "ws://[::1]:45283"
    assert TcpAddress("127.0.0.1", 44907).url == "ws://127.0.0.1:44907"


@requirement("listen:stdio")
@pytest.mark.parametrize("url", ["stdio", "stdio://"])
def test_stdio_has_two_spellings(url):
    assert parse_listen_url(url) == StdioAddress()


@requirement("listen:unix")
@pytest.mark.parametrize("path", ["/run/user/1000/exec.sock", "exec.sock", "a b/ü?#%20", "/"])
def test_a_unix_path_is_taken_as_it_is(path):
    address = parse_listen_url(f"unix://{path}")
    assert address == UnixAddress(path)
    assert address.url == f"unix://{path}"


@requirement("listen:unix-needs-path")
@pytest.mark.parametrize("url", ["unix://", "unix://a\0b"])
def test_a_unix_url_needs_a_path_that_can_exist(url):
    assert refusal(url) == f"invalid unix --listen URL `{url}`; expected `unix://PATH`"


@requirement("listen:ws-invalid")
@pytest.mark.parametrize(
    "rest",
    [
        "",
        "localhost:1",
        "127.0.0.1",
        "127.0.0.1:",
        ":1",
        "127.0.0.1:1/",
        "127.0.0.1:0?x",
        "127.0.0.1:65536",
        "127.0.0.1:+5",
        "127.0.0.1:-0",
        "127.0.0.1:٣",
        "127.0.0.1:0 ",
        "127.0.0.1:0\n",
        " 127.0.0.1:0",
        "u@127.0.0.1:0",
        "127.1:0",
        "0127.0.0.1:0",
        "127.0.0.01:0",
        "0x7f.0.0.1:0",
        "127.0.0.256:0",
        "127.0.0.1\0:0",
        "::1:0",
        "[127.0.0.1]:0",
        "[::1]",
        "[::1]0",
        "[::1:0",
        "[]:0",
        "[1::2::3]:0",
        "[00001::]:0",
        "[::1%lo]:0",
        "[::1%]:0",
        "[::1%4294967296]:0",
        "127.0.0.1:" + "9" * 5000,
        "[::1%" + "9" * 5000 + "]:0",
    ],
)
def test_what_is_not_ip_and_port_is_an_invalid_websocket_url(rest):
    url = f"ws://{rest}"
    assert refusal(url) == f"invalid websocket --listen URL `{url}`; expected `ws://IP:PORT`"


@requirement("listen:unsupported")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "ws:",
        "wss://127.0.0.1:0",
        "WS://127.0.0.1:0",
        " ws://127.0.0.1:0",
        "http://127.0.0.1:0",
        "127.0.0.1:0",
        "STDIO",
        "stdio ",
        " stdio",
        "stdio:",
        "stdio:///",
        "stdio://x",
        "unix:/tmp/x",
        "UNIX:///tmp/x",
    ],
)
def test_every_other_scheme_and_spelling_is_unsupported(url):
    expected = f"unsupported --listen URL `{url}`; expected `ws://IP:PORT` or `stdio`"
    assert refusal(url).startswith(expected)


@given(st.text() | st.text().map("ws://".__add__) | st.text().map("ws://[".__add__))
def test_a_value_is_read_or_refused_and_nothing_else(url):
    try:
        parse_listen_url(url)
    except ExecServerListenUrlParseError as refused:
        assert url in str(refused)


def test_a_refused_value_is_a_configuration_error():
    assert issubclass(ExecServerListenUrlParseError, ConfigurationError)


@requirement("listen:loopback")
@given(st.ip_addresses())
def test_loopback_means_what_the_standard_library_means(ip):
    plain = getattr(ip, "ipv4_mapped", None) or ip
    assert TcpAddress(str(ip), 0).is_loopback == plain.is_loopback


@requirement("listen:loopback")
@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("128.0.0.1", False),
        ("0.0.0.0", False),
        ("::1", True),
        ("::1%1", True),
        ("::", False),
        ("::2", False),
        ("::ffff:127.9.9.9", True),
        ("::ffff:10.0.0.1", False),
        ("::127.0.0.1", False),
        ("localhost", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host, is_loopback):
    assert TcpAddress(host, 0).is_loopback is is_loopback


def test_the_module_does_not_load_socket():
    program = "import sys, exec_server.transport.address; sys.exit('socket' in sys.modules)"
    # Without `site`, whose start-up files may load anything.
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env=environment)
