"""The proxies that the environment names."""

from __future__ import annotations

import pytest

from exec_server.outbound.proxies import Proxies
from exec_server.outbound.url import parse
from tests.requirements import requirement


def chosen(url: str, **environ: str) -> str | None:
    proxy = Proxies(environ).for_url(parse(url))
    return str(proxy.url) if proxy is not None else None


@requirement("http/proxy:variables")
@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "http://p:1"}, "http://p:1/", None),
        ({"http_proxy": "p:1"}, "http://p:1/", None),
        ({"HTTP_PROXY": "u:1", "http_proxy": "l:1"}, "http://u:1/", None),
        ({"HTTPS_PROXY": "https://p"}, None, "https://p/"),
        ({"ALL_PROXY": "a:1"}, "http://a:1/", "http://a:1/"),
        ({"ALL_PROXY": "a:1", "HTTP_PROXY": "p:1"}, "http://p:1/", "http://a:1/"),
        ({"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"HTTP_PROXY": "::::"}, None, None),
        ({"ALL_PROXY": "socks5h://p:1"}, None, None),
        ({"HTTP_PROXY": ""}, None, None),
    ],
)
def test_a_proxy_goes_by_the_scheme(environ, http, https):
    assert chosen("http://h/", **environ) == http
    assert chosen("https://h/", **environ) == https


@requirement("http/proxy:exceptions")
@pytest.mark.parametrize(
    ("exceptions", "host", "is_direct"),
    [
        ("h.example", "h.example", True),
        ("h.example", "a.h.example", True),
        ("h.example", "ah.example", False),
        (".h.example", "a.h.example", True),
        (" x , H.example ", "h.example", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.0/8", "127.1.2.3", True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("::1", "[::1]", True),
        ("*", "h.example", True),
        ("*", "127.0.0.1", False),
        ("", "h.example", False),
    ],
)
def test_exceptions_are_reached_directly(exceptions, host, is_direct):
    proxy = chosen(f"http://{host}/", HTTP_PROXY="p:1", NO_PROXY=exceptions)
    assert (proxy is None) == is_direct


@requirement("http/proxy:credentials")
def test_credentials_are_for_the_proxy_and_do_not_show():
    proxy = Proxies({"HTTP_PROXY": "http://user:pw@p:1"}).for_url(parse("http://h/"))
    assert proxy is not None
    assert proxy.authorization == "Basic dXNlcjpwdw=="
    assert "pw" not in repr(proxy)
    assert "pw" not in str(proxy.url)
