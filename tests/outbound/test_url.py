"""URLs as browsers read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.outbound.url import Origin, UnsupportedScheme, Url, UrlError, parse
from tests.requirements import requirement


@requirement("http/url:whatwg")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTP://Host", "http://host/"),
        ("http:host/x", "http://host/x"),
        ("http:\\\\host\\x", "http://host/x"),
        ("  http://h/\t", "http://h/"),
        ("http://h:80/", "http://h/"),
        ("https://h:443", "https://h/"),
        ("http://h:/", "http://h/"),
        ("http://h:8080?q", "http://h:8080/?q"),
        ("http://h/a/./b/../c", "http://h/a/c"),
        ("http://h/a/%2e%2E/b/.", "http://h/b/"),
        ("http://h/../..", "http://h/"),
        ("http://h/a b?c d#e", "http://h/a%20b?c%20d"),
        ("http://h/é?é'", "http://h/%C3%A9?%C3%A9%27"),
        ("http://h/%zz{}", "http://h/%zz%7B%7D"),
        ("http://u:p@h", "http://u:p@h/"),
        ("http://u@v@h", "http://u%40v@h/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433", "http://127.0.0.1/"),
        ("http://0177.0.0.1", "http://127.0.0.1/"),
        ("http://[::1]:8/", "http://[::1]:8/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("http://bücher.example", "http://xn--bcher-kva.example/"),
        ("http://H%41.example", "http://ha.example/"),
        ("http://a_b/", "http://a_b/"),
        # IDNA 2003 would read another name.
        ("http://faß.de", "http://xn--fa-hia.de/"),
        ("http://-x.ß", "http://-x.xn--zca/"),
        ("http://ΑΣ.gr", "http://xn--mxa0b.gr/"),
        # IDNA 2008 would refuse it.
        ("http://☃.net", "http://xn--n3h.net/"),
        ("http://a\u00adb", "http://ab/"),
        # The newest URL standard says `%5E` in a path; the reference does not.
        ("http://h/a^b?c^d", "http://h/a^b?c^d"),
        ("http://h/\ud800?\udfff", "http://h/%EF%BF%BD?%EF%BF%BD"),
    ],
)
def test_an_address_is_read_as_a_browser_reads_it(text, expected):
    assert str(parse(text)) == expected


@requirement("http/url:refused")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "relative URL without a base"),
        ("/x", "relative URL without a base"),
        ("http://", "empty host"),
        ("http://:80", "empty host"),
        ("http://h:x", "invalid port number"),
        ("http://h:65536", "invalid port number"),
        (f"http://h:{'9' * 5000}", "invalid port number"),
        (f"http://{'9' * 5000}", "invalid IPv4 address"),
        ("http://[::1", "invalid IPv6 address"),
        ("http://[x]", "invalid IPv6 address"),
        ("http://[fe80::1%25eth0]/", "invalid IPv6 address"),
        ("http://1.2.3.4.5", "invalid IPv4 address"),
        ("http://256.1.1.1", "invalid IPv4 address"),
        ("http://08.1.1.1", "invalid IPv4 address"),
        ("http://a b/", "invalid international domain name"),
        ("http://%ff", "invalid international domain name"),
        ("http://⒈.com", "invalid international domain name"),
        ("http://a^b", "invalid international domain name"),
        ("http://ß^b", "invalid international domain name"),
        ("http://xn--a", "invalid international domain name"),
        ("http://xn--", "invalid international domain name"),
        (f"http://xn--{'a' * 1_000_000}", "invalid international domain name"),
        ("http://\u00ad/", "empty host"),
        ("http://:x/", "empty host"),
        ("http://2001::1]", "invalid port number"),
    ],
)
def test_what_is_no_address_is_refused_with_the_reason(text, why):
    with pytest.raises(UrlError, match=f"^{why}$"):
        parse(text)


@requirement("http/url:scheme")
@pytest.mark.parametrize("text", ["ftp://x", "FTP://x", "data:x", "file:///x", "ws://h"])
def test_other_schemes_are_named(text):
    with pytest.raises(UnsupportedScheme) as caught:
        parse(text)
    assert caught.value.scheme == text.partition(":")[0].lower()


@requirement("http/redirect:location")
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/x", "http://h:1/x"),
        ("x", "http://h:1/a/x"),
        ("../x", "http://h:1/x"),
        ("?x", "http://h:1/a/b?x"),
        ("", "http://h:1/a/b?q"),
        ("#f", "http://h:1/a/b?q"),
        ("//other/x", "http://other/x"),
        ("http:x", "http://h:1/a/x"),
        ("http:/other/x", "http://h:1/other/x"),
        ("http:\\\\other\\x", "http://other/x"),
        ("https:x", "https://x/"),
        ("https://o", "https://o/"),
    ],
)
def test_a_relative_address_is_seen_from_its_base(location, expected):
    assert str(parse(location, base=parse("http://h:1/a/b?q#f"))) == expected


def test_credentials_are_decoded():
    assert parse("http://us%20er:p%40w@h").credentials() == (b"us er", b"p@w")
    assert parse("http://user@h").credentials() == (b"user", b"")
    assert parse("http://h").credentials() is None


def test_an_origin_has_a_port():
    assert parse("https://h/x").origin == Origin("https", "h", 443)


@given(st.text())
def test_any_text_is_an_address_or_a_url_error(text):
    try:
        url = parse(text)
    except UrlError:
        return
    assert isinstance(url, Url)


@given(st.text(), st.text())
def test_any_host_is_a_name_or_a_url_error(before, label):
    try:
        host = parse(f"http://{before}.xn--{label}").host
    except UrlError:
        return
    assert host.isascii()


@given(st.text(), st.text())
def test_an_address_that_was_read_reads_the_same_again(path, query):
    url = parse(f"http://user:pass@host:81/{path}?{query}")
    again = parse(str(url))
    assert again == url
    assert str(url).isascii()
    assert not set(str(url)) & set(" \t\r\n\0")
