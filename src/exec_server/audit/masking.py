"""Removes secrets from command lines, texts and URLs, before they are written to a log.

A secret is found by the name before it (`--token X`, `PASSWORD=X`, `Authorization: Bearer X`), by
its own form (`exs_...`, a JWT), or because it is one of the server's own. A secret without any of
these, such as a password as the third word of a program, cannot be found.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from urllib.parse import urlsplit, urlunsplit

MASK = "***"

# A name is secret if one of its parts is one of these words, or two neighbours are such a pair.
_WORDS = frozenset(
    "token password passwd passphrase passcode secret apikey credential credentials jwt auth "
    "authorization bearer cookie signature privatekey accesskey secretkey".split()
)
_PAIRS = frozenset(
    (one, "key") for one in ("api", "access", "private", "secret", "signing", "encryption", "auth")
)
# A name that ends like this names a place, and not the secret itself.
_PLACES = frozenset("file path dir stdin fd name type url uri command cmd length count".split())
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# A text without any of these has no secret that could be found.
_SIGNS = (
    "token passw passphrase passcode secret key credential jwt auth bearer basic cookie signature "
    "@ exs_ gh glpat- xox sk- sk_ akia asia aiza npm_ pypi- eyj -u"
).split()

# What follows a name: to the end of a quoted text, or to the next blank or separator.
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"'&;|<>,)}\]]+)"""
# `name=value`, `name: value`, `"name": "value"`, and `--name value`. The value is not a part of the
# match, because it may have an assignment of its own.
_NAME = re.compile(
    r"""(?<![\w.-])(?P<dashes>-{0,2})(?P<name>[A-Za-z][\w.-]*)"""
    r"""(?:["']?\s*(?:=|:(?!//))\s*|(?P<blank>\s+)(?!-))"""
)
_NAMED_VALUE = re.compile(rf"(?P<scheme>(?:bearer|basic|token|digest)\s+)?{_VALUE}", re.IGNORECASE)
_SCHEME = re.compile(r"\b(?P<head>(?:bearer|basic)\s+)(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<![A-Za-z0-9+.-])(?P<head>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@\"']+@")
_URL = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>()`]+")
_FORMS = re.compile(
    r"""exs_[\w-]{40,} | (?<![\w-])(?:
        exs_[\w-]+
      | gh[oprsu]_\w{16,} | github_pat_\w{16,} | glpat-[\w-]{16,}
      | xox[abeoprs]-[\w-]{10,}
      | sk-[\w-]{16,} | sk_(?:live|test)_\w{10,}
      | A(?:KIA|SIA)[A-Z0-9]{16}
      | AIza[\w-]{30,}
      | npm_\w{30,} | pypi-[\w-]{30,}
      | eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?
    )""",
    re.VERBOSE,
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# Parts of a text that could be one of the server's own tokens.
_CANDIDATE = re.compile(r"[^\s\"'=:,;&?@]{8,}")
# Options whose value is a user with a password: `curl -u me:password`.
_USER_OPTIONS = frozenset(("-u", "--user", "--proxy-user", "-U"))
_WITH_PASSWORD = re.compile(r"(?P<user>[^:\s]*):(?P<rest>\S.*)", re.DOTALL)
# A longer command line or text is cut: the time to look at it is bounded, and so is its line.
_CHARACTERS = 8192
_MOST_WORDS = 1024
# So much before a cut may be a part of a secret that was cut, too.
_CUT_WORD = 256


def is_secret_name(name: str) -> bool:
    """True if a variable, option or field with this name usually has a secret as its value."""
    parts = [part.lower() for part in _PART.findall(name)]
    if not parts or parts[-1] in _PLACES:
        return False
    return any(part in _WORDS for part in parts) or any(pair in _PAIRS for pair in pairwise(parts))


class Masker:
    """Masks secrets; also the server's own, whose SHA-256 digests are in *digests*."""

    def __init__(self, digests: Iterable[bytes] = ()) -> None:
        self._digests = frozenset(digests)

    def command(self, argv: Sequence[str]) -> list[str]:
        """A command line without its secrets; it is cut if it is very long."""
        whole = _cut(argv)
        if not self._is_suspicious("\0".join(whole)):
            return whole
        masked = []
        before = ""
        for word in whole:
            masked.append(self._word(before, word))
            before = word
        return masked

    def _word(self, before: str, word: str) -> str:
        if before in _USER_OPTIONS and (found := _WITH_PASSWORD.fullmatch(word)):
            return f"{found['user']}:{MASK}"
        is_value = _is_option(before) and is_secret_name(before)
        # The option may have no value, and another one follows.
        if is_value and not word.startswith("--") and not (len(word) == 2 and word[0] == "-"):
            return MASK
        return self._masked(word)

    def text(self, text: str) -> str:
        """A text without its secrets; it is cut if it is very long."""
        text = _cut([text])[0]
        return self._masked(text) if self._is_suspicious(text) else text

    def _is_suspicious(self, text: str) -> bool:
        if self._digests:
            return True
        lowered = text.lower()
        return any(sign in lowered for sign in _SIGNS)

    def _masked(self, text: str) -> str:
        if self._digests:
            text = _CANDIDATE.sub(self._known, text)
        text = _PRIVATE_KEY.sub(MASK, text)
        text = _USER_IN_URL.sub(rf"\g<head>{MASK}@", text)
        text = _without_named(text)
        text = _SCHEME.sub(rf"\g<head>{MASK}", text)
        return _FORMS.sub(MASK, text)

    def url(self, url: str) -> str:
        """A URL without user, values of the query, and fragment."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return MASK
        host = parts.netloc.rpartition("@")[2]
        query = (
            "&".join(_query_name(each) for each in parts.query.split("&")) if parts.query else ""
        )
        return self.text(urlunsplit((parts.scheme, host, parts.path, query, "")))

    def message(self, text: str) -> str:
        """A message about a request, whose URLs lose what `url` removes."""
        return _URL.sub(lambda found: self.url(found.group()), self.text(text))

    def _known(self, found: re.Match[str]) -> str:
        word = found.group()
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
        return MASK if digest in self._digests else word


def _is_option(word: str) -> bool:
    return word.startswith("-") and "=" not in word


def _query_name(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}={MASK}" if equals else MASK


def _without_named(text: str) -> str:
    """*text* without the values that follow the name of a secret."""
    parts, done, position = [], 0, 0
    while (found := _NAME.search(text, position)) is not None:
        position = found.end()
        # In `--name value` the name is an option; other words may be followed by any text.
        is_named = found["blank"] is None or found["dashes"]
        if is_named and is_secret_name(found["name"]):
            value = _NAMED_VALUE.match(text, position)
            if value is not None:
                parts += [text[done:position], value["scheme"] or "", MASK]
                done = position = value.end()
    return "".join([*parts, text[done:]])


def _cut(argv: Sequence[str]) -> list[str]:
    """*argv* up to a number of characters."""
    if len(argv) <= _MOST_WORDS and sum(map(len, argv)) <= _CHARACTERS:
        return list(argv)
    kept: list[str] = []
    room = _CHARACTERS
    for number, word in enumerate(argv):
        if number == _MOST_WORDS:
            return [*kept, f"... ({len(argv)} words)"]
        if len(word) > room:
            kept.append(word[: max(room - _CUT_WORD, 0)] + f"... ({len(word)} characters)")
            return kept if number + 1 == len(argv) else [*kept, f"... ({len(argv)} words)"]
        kept.append(word)
        room -= len(word)
    return kept


# It knows no secrets of a server.
PLAIN = Masker()
