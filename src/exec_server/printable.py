"""Texts of peers as they may be written to a log or a terminal. This is pure."""

from __future__ import annotations

from exec_server.small_digests import sha256

# A longer text of a peer is cut: it would only hide the rest of the line.
_SHOWN_CHARACTERS = 256
_DIGEST_CHARACTERS = 12


def printable(text: str | bytes, *, limit: int = _SHOWN_CHARACTERS) -> str:
    """Return *text* in one line, without control characters, and cut after *limit* characters.

    Bytes that are not UTF-8, and characters that a terminal may act on or not show, are written
    as escapes of Python.
    """
    if isinstance(text, bytes):
        text = text[: limit * 4 + 4].decode("utf-8", "backslashreplace")
    is_long = len(text) > limit
    shown = escaped(text[:limit])
    if len(shown) > limit:
        is_long, shown = True, shown[:limit]
    return f"{shown}..." if is_long else shown


def escaped(text: str, *, keep: str = "") -> str:
    """Return *text* with escapes for all characters that are not printable, except *keep*."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


class ShortDigest:
    """The `short_digest` of *secret* for a line of a log, made only if the line is written."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def __str__(self) -> str:
        return short_digest(self._secret)


def short_digest(secret: str) -> str:
    """Return a short name for *secret*, such as a session's id, from which it cannot be found."""
    digest = sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:_DIGEST_CHARACTERS]
