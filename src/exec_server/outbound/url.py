"""URLs of http and https, read by the WHATWG rules as browsers do; no I/O.

tests/outbound/test_url_wpt.py compares it with the cases of web-platform-tests.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple, NoReturn
from urllib.parse import quote_from_bytes, unquote_to_bytes

from exec_server.outbound.host_names import to_ascii

DEFAULT_PORTS = {"http": 80, "https": 443}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_LONE_SURROGATES = re.compile(r"[\ud800-\udfff]")
_BLANKS = str.maketrans("", "", "\t\n\r")
_AROUND = "".join(map(chr, range(0x21)))
_LEADING_SLASHES = re.compile(r"[/\\]*")
_AUTHORITY = re.compile(r"[^/\\?#]*")
# A colon between brackets belongs to the host.
_HOST = re.compile(r"(?:\[[^\]]*(?:\]|\Z)|[^:\[])*")
_FORBIDDEN_IN_HOST = re.compile(r"[\x00-\x20\x7f#%/:<>?@\[\\\]^|]")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_DOT = re.compile(r"\.|%2e", re.IGNORECASE)
_MAX_PORT = 65535

# The characters that are not percent-encoded in each part; letters, digits and `_.-~` never are.
_IN_PATH = "!$%&'()*+,/:;=@[\\]^|"
_IN_QUERY = "!$%&()*+,/:;=?@[\\]^`{|}"
_IN_USERINFO = "!$%&'()*+,"


class UrlError(ValueError):
    """The text is not a URL; the message says why."""


class UnsupportedScheme(UrlError):
    """The scheme of the URL is neither http nor https."""

    def __init__(self, scheme: str) -> None:
        super().__init__(scheme)
        self.scheme = scheme


class Origin(NamedTuple):
    scheme: str
    # An IPv6 address is in brackets.
    host: str
    port: int


class Url(NamedTuple):
    """An absolute URL without its fragment, which is never sent."""

    scheme: str
    username: str
    password: str
    host: str
    # None means the default port of the scheme.
    port: int | None
    path: str
    query: str | None

    @property
    def origin(self) -> Origin:
        return Origin(self.scheme, self.host, self.port or DEFAULT_PORTS[self.scheme])

    @property
    def authority(self) -> str:
        """The host, and the port unless it is the default one."""
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def root(self) -> str:
        return f"{self.scheme}://{self.authority}/"

    def credentials(self) -> tuple[bytes, bytes] | None:
        """Return the decoded user name and password, if there are any."""
        if not (self.username or self.password):
            return None
        return unquote_to_bytes(self.username), unquote_to_bytes(self.password)

    def without_credentials(self) -> Url:
        return self._replace(username="", password="")

    def __str__(self) -> str:
        user = self.username + (f":{self.password}" if self.password else "")
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.scheme}://{user}{'@' if user else ''}{self.authority}{self.path}{query}"


def parse(text: str, *, base: Url | None = None) -> Url:
    """Read *text* as a URL, relative to *base* if that is given. Raises UrlError."""
    text = _LONE_SURROGATES.sub("\ufffd", text)
    text = text.strip(_AROUND).translate(_BLANKS).partition("#")[0]
    scheme = _SCHEME.match(text)
    if scheme is None:
        if base is None:
            raise UrlError("relative URL without a base")
        return _relative(text, base)
    name, rest = scheme[1].lower(), text[scheme.end() :]
    if name not in DEFAULT_PORTS:
        raise UnsupportedScheme(name)
    if base is not None and base.scheme == name:
        return _relative(rest, base)
    slashes = _LEADING_SLASHES.match(rest)
    return _absolute(name, rest[slashes.end() :] if slashes else rest)


def _relative(text: str, base: Url) -> Url:
    if re.match(r"[/\\]{2}", text):
        return _absolute(base.scheme, text.lstrip("/\\"))
    path, mark, query = text.partition("?")
    if not path:
        return base._replace(query=_encode(query, _IN_QUERY) if mark else base.query)
    path = path.replace("\\", "/")
    if not path.startswith("/"):
        path = base.path[: base.path.rindex("/") + 1] + path
    return base._replace(path=_path(path), query=_encode(query, _IN_QUERY) if mark else None)


def _absolute(scheme: str, rest: str) -> Url:
    """Read the rest of a URL after `scheme://`."""
    authority = _AUTHORITY.match(rest)
    assert authority is not None  # The pattern also matches an empty text.
    userinfo, _, address = authority[0].rpartition("@")
    username, _, password = userinfo.partition(":")
    host, number = _host_and_port(address)
    path, mark, query = rest[authority.end() :].partition("?")
    return Url(
        scheme,
        _encode(username, _IN_USERINFO),
        _encode(password, _IN_USERINFO),
        host,
        None if number == DEFAULT_PORTS[scheme] else number,
        _path(path.replace("\\", "/") or "/"),
        _encode(query, _IN_QUERY) if mark else None,
    )


def _host_and_port(address: str) -> tuple[str, int | None]:
    host = _HOST.match(address)
    assert host is not None  # The pattern also matches an empty text.
    return _host(host[0]), _port(address[host.end() + 1 :])


def _port(text: str) -> int | None:
    if not text:
        return None
    digits = text.lstrip("0") or "0"
    # The length is checked first: Python refuses to read numbers of thousands of digits.
    if not (text.isascii() and text.isdigit()) or len(digits) > 5 or int(digits) > _MAX_PORT:
        raise UrlError("invalid port number")
    return int(digits)


def _host(text: str) -> str:
    if not text:
        raise UrlError("empty host")
    if text.startswith("["):
        return _ipv6(text)
    try:
        name = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        _refuse_name()
    if name.isascii():
        name = name.lower()
    # Punycode is decoded as well, to refuse what does not stand for a name.
    if not name.isascii() or "xn--" in name:
        try:
            name = to_ascii(name)
        except ValueError:
            _refuse_name()
    if not name:
        raise UrlError("empty host")
    if _FORBIDDEN_IN_HOST.search(name):
        _refuse_name()
    return _ipv4(name) if _ends_in_number(name) else name


def _refuse_name() -> NoReturn:
    raise UrlError("invalid international domain name")


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text[1:-1] if text.endswith("]") else "")
    except ValueError:
        raise UrlError("invalid IPv6 address") from None
    if address.scope_id:
        raise UrlError("invalid IPv6 address")
    return f"[{address.compressed}]"


def _ends_in_number(name: str) -> bool:
    last = name.removesuffix(".").rpartition(".")[2]
    return bool(_NUMBER.fullmatch(last))


def _ipv4(name: str) -> str:
    """Read an IPv4 address of one to four numbers in any base; the last one fills the rest."""
    parts = name.removesuffix(".").split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        raise UrlError("invalid IPv4 address")
    try:
        *leading, last = (_number(part) for part in parts)
    except ValueError:
        raise UrlError("invalid IPv4 address") from None
    if any(part > 255 for part in leading) or last >= 256 ** (4 - len(leading)):
        raise UrlError("invalid IPv4 address")
    high = sum(part << 8 * (3 - index) for index, part in enumerate(leading))
    return str(ipaddress.IPv4Address(high | last))


def _number(text: str) -> int:
    if text[:2].lower() == "0x":
        return int(text[2:] or "0", 16)
    return int(text, 8) if text.startswith("0") else int(text)


def _path(path: str) -> str:
    """Return an absolute *path* without dot segments, percent-encoded."""
    segments: list[str] = []
    *directories, last = path[1:].split("/")
    for segment in directories:
        _step(segments, segment)
    if not _step(segments, last):
        segments.append("")
    return _encode("/" + "/".join(segments), _IN_PATH)


def _step(segments: list[str], segment: str) -> bool:
    """Add *segment*, or follow it if it is `.` or `..`; True if it was added."""
    dots = len(_DOT.findall(segment))
    if not dots or dots > 2 or _DOT.sub("", segment):
        segments.append(segment)
        return True
    if dots == 2 and segments:
        segments.pop()
    return False


def _encode(text: str, safe: str) -> str:
    return quote_from_bytes(text.encode(), safe=safe)
