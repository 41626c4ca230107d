"""file: URIs ↔ native POSIX paths, as bytes.

Reading follows the WHATWG URL rules for the scheme ``file``, as the reference does. A text that is
no path URI raises `InvalidParams`. A path URI of another host or platform raises its subclass
`ForeignPath`.
"""

from __future__ import annotations

import re

from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol.base64 import Base64Error, decode_base64, encode_base64

# Expressions that few paths need are compiled when one does: together they take half a millisecond.

# The form of a path whose plain URI would name something else. No plain URI contains %00.
_RESERVED = "file:///%00/bad/path/"
_RESERVED_URI = re.escape(_RESERVED) + "([A-Za-z0-9_-]+)"
_TO_URL_SAFE = str.maketrans("+/", "-_", "=")
_FROM_URL_SAFE = str.maketrans("-_", "+/")

_SCHEME = r"([A-Za-z][A-Za-z0-9+.-]*):"
# A URL parser removes these at both ends, and the three in _BREAKS anywhere.
_BLANKS = "".join(map(chr, range(0x21)))
_BREAKS = str.maketrans("", "", "\t\n\r")
_PERCENT = rb"%([0-9A-Fa-f]{2})"

# Bytes that we percent-encode in a URI. A URI that we read and repeat in an error keeps its own
# percent signs.
_ENCODED = re.compile(rb"[^A-Za-z0-9!$&'()*+,\-./:;=@\[\]^_|~]")
_ENCODED_AGAIN = rb"[^A-Za-z0-9!$%&'()*+,\-./:;=@\[\]^_|~]"

_DOT = frozenset({".", "%2e"})
_DOT_DOT = frozenset({"..", ".%2e", "%2e.", "%2e%2e"})

_DRIVE = r"[A-Za-z][:|]"
# `C|` is also a drive if no authority precedes it. After an authority it is an ordinary name.
_DRIVE_BAR = r"(?<=\A[A-Za-z])\|(?=/|\Z)"
_DRIVE_PATH = rb"/[A-Za-z](?::|%3[Aa])(?:/|\Z)"

_FORBIDDEN_IN_HOST = r"[\x00-\x20#%/:<>?@\[\\\]^|\x7f]"
_IPV6 = r"\[[0-9A-Fa-f:.]+\]"


# Paths and URIs that need no work: they have no escapes, no dot or empty segments, and no drive.
_PLAIN = r"((?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9!$&'()*+,\-.;=@\[\]^_~]+)+)"
_PLAIN_URI = re.compile("file://" + _PLAIN, re.ASCII)
_PLAIN_PATH = re.compile(_PLAIN.encode())


class ForeignPath(InvalidParams):
    """A well-formed path URI of another host or platform; `uri` is its normal spelling."""

    def __init__(self, uri: str) -> None:
        super().__init__(_invalid_here(uri))
        self.uri = uri


class PathUri:
    """A path as a member of a message, in either dialect; shapes use it as a member's type.

    A text that is no path is refused while the message is decoded. A path of another host or
    platform is refused when it is used.
    """

    __slots__ = ("_native", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        plain = _PLAIN_URI.fullmatch(text)
        self._native: bytes | ForeignPath
        if plain is not None:
            self._native = plain[1].encode()
            return
        try:
            self._native = normalised(to_native(text))
        except ForeignPath as exc:
            self._native = exc

    @staticmethod
    def of(path: bytes | str) -> PathUri:
        """The URI of an absolute native path. Raises ValueError as `to_uri` does."""
        return PathUri(to_uri(path))

    @property
    def native(self) -> bytes:
        """The normalised native path. Raises InvalidRequest for a path of another platform."""
        if type(self._native) is bytes:
            return self._native
        raise InvalidRequest(str(self._native))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PathUri) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"PathUri({self.text!r})"


def to_native(text: str) -> bytes:
    """The native path that *text* names, in any dialect.

    A text that starts with ``/`` is the path itself. Any other text is a URI as in `from_uri`.

    Raises InvalidParams as `from_uri` does. The result contains no NUL.
    """
    if not text.startswith("/"):
        return from_uri(text)
    try:
        path = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise InvalidParams("path is not valid Unicode") from exc
    if b"\0" in path:
        raise InvalidParams("path must not contain NUL")
    return path


def from_uri(text: str) -> bytes:
    """The native path of a file: URI. It is absolute and normalised, and contains no NUL.

    Raises InvalidParams if *text* is no path URI, and ForeignPath if it is not of this host.
    """
    plain = _PLAIN_URI.fullmatch(text)
    if plain is not None:
        return plain[1].encode()
    host, encoded = _parse(text)
    path = _percent_decoded(encoded)
    if b"\0" in path:
        return _from_reserved(_spelled(host, encoded))
    if re.match(_DRIVE_PATH, encoded):
        raise ForeignPath(_spelled(host, encoded[:2].upper() + encoded[2:]))
    if host:
        raise ForeignPath(_spelled(host, encoded))
    return normalised(path)


def to_uri(path: bytes | str) -> str:
    """The file: URI of an absolute native path; `from_uri` turns it back into the path.

    The path is normalised first, because a URI cannot contain ``..``. Raises ValueError for a
    path that is relative or contains a NUL.
    """
    if isinstance(path, str):
        path = path.encode("utf-8", "surrogateescape")
    if _PLAIN_PATH.fullmatch(path):
        return f"file://{path.decode()}"
    if not path.startswith(b"/") or b"\0" in path:
        raise ValueError(f"not an absolute path: {path.decode('utf-8', 'surrogateescape')!r}")
    path = normalised(path)
    plain = _percent_encoded(_ENCODED, path)
    if not re.match(_DRIVE_PATH, plain):
        return f"file://{plain.decode()}"
    return _RESERVED + encode_base64(path).decode().translate(_TO_URL_SAFE)


def encoded(name: bytes) -> str:
    """A path or a part of one, percent-encoded for a URI."""
    return _percent_encoded(_ENCODED, name).decode()


def normalised(path: bytes) -> bytes:
    """*path* from the root, without ``.``, ``..``, repeated or trailing slashes.

    The file system is not asked: ``..`` after a symbolic link removes the link's name.
    """
    kept: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del kept[-1:]
        elif part not in (b"", b"."):
            kept.append(part)
    return b"/" + b"/".join(kept)


def _parse(text: str) -> tuple[str, bytes]:
    """The host ("" is this one) and the percent-encoded path of a file: URI."""
    text = text.strip(_BLANKS).translate(_BREAKS)
    scheme = re.match(_SCHEME, text)
    if scheme is None:
        raise InvalidParams("invalid URI: relative URL without a base")
    if scheme[1].lower() != "file":
        raise InvalidParams(f"unsupported path URI scheme `{scheme[1].lower()}`")
    rest, hash_sign, _ = text[scheme.end() :].partition("#")
    rest, question_mark, _ = rest.partition("?")
    host, path = _split_authority(rest.replace("\\", "/"))
    if question_mark:
        raise InvalidParams("query parameters are not allowed in path URIs")
    if hash_sign:
        raise InvalidParams("fragments are not allowed in path URIs")
    try:
        return host, _without_dot_segments(path).encode()
    except UnicodeEncodeError as exc:
        raise InvalidParams("invalid URI: not valid Unicode") from exc


def _split_authority(rest: str) -> tuple[str, str]:
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
        if not re.fullmatch(_DRIVE, authority):
            return _host(authority), path
        rest = rest[2:]
    return "", re.sub(_DRIVE_BAR, ":", rest.removeprefix("/"))


def _host(authority: str) -> str:
    if authority.startswith("["):
        if not re.fullmatch(_IPV6, authority):
            raise InvalidParams("invalid URI: invalid IPv6 address")
        return authority
    try:
        host = _percent_decoded(authority.encode()).decode().lower()
    except UnicodeError:
        host = "%"
    # Credentials and ports need characters that a host name cannot have.
    if re.search(_FORBIDDEN_IN_HOST, host):
        raise InvalidParams("invalid URI: invalid international domain name")
    return "" if host == "localhost" else host


def _without_dot_segments(path: str) -> str:
    """*path* from the root. Empty segments count, so that ``a//../b`` is ``/a/b``."""
    kept: list[str] = []
    segment = ""
    for segment in path.split("/"):
        if segment.lower() in _DOT_DOT:
            # A drive is a root: `..` does not go above it.
            if len(kept) != 1 or not re.fullmatch(_DRIVE, kept[0]):
                del kept[-1:]
        elif segment.lower() not in _DOT:
            kept.append(segment)
    if segment.lower() in _DOT | _DOT_DOT:
        kept.append("")
    return "/" + "/".join(kept).lstrip("/")


def _from_reserved(uri: str) -> bytes:
    """The path of a URI that contains %00, which only the reserved form may.

    A path that has a plain URI is refused in this form, so that each path has one URI.
    """
    match = re.fullmatch(_RESERVED_URI, uri)
    if match is None:
        raise InvalidParams(_invalid_here(uri))
    padding = "=" * (-len(match[1]) % 4)
    try:
        path = decode_base64(match[1].translate(_FROM_URL_SAFE) + padding)
    except Base64Error as exc:
        raise InvalidParams(_invalid_here(uri)) from exc
    if not path.startswith(b"/") or b"\0" in path or to_uri(path) != uri:
        raise ForeignPath(uri)
    return path


def _invalid_here(uri: str) -> str:
    # This is the reference's text. Every platform that we run on has paths like Linux.
    return f"'{uri}' is invalid on 'linux'"


def _spelled(host: str, encoded: bytes) -> str:
    """The normal spelling of a URI, as the reference repeats it in its errors."""
    return f"file://{host}{_percent_encoded(_ENCODED_AGAIN, encoded).decode()}"


def _percent_encoded(pattern: bytes | re.Pattern[bytes], raw: bytes) -> bytes:
    return re.sub(pattern, lambda match: b"%%%02X" % match[0][0], raw)


def _percent_decoded(raw: bytes) -> bytes:
    """*raw* with each ``%XX`` decoded; a percent sign without two digits is kept."""
    return re.sub(_PERCENT, lambda match: bytes.fromhex(match[1].decode()), raw)
