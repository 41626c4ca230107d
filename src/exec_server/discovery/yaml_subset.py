"""The part of YAML that people write front matter in; no I/O.

Block and flow mappings and sequences, plain, quoted and block scalars, comments. Anchors, tags,
several documents and complex keys are refused. Every scalar is text: only whoever reads a field
knows whether ``on`` is a word.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

Value = str | None | list["Value"] | dict[str, "Value"]

MAX_DEPTH = 32
_NULLS = ("", "~", "null", "Null", "NULL")
_REFUSED = tuple("&*!@`%")
_COLON = re.compile(r":(?:\s+|$)")
_QUOTED_KEY = re.compile(r"\s*:(?:\s+|$)")
# What no plain key starts with.
_INDICATORS = tuple("[]{},#&*!|>@`%?")
_BLOCK_SCALAR = re.compile(r"([|>])([+-]?)(?:\s+#.*)?$")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*\"""")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {"0": r"\u0000", "a": r"\u0007", "e": r"\u001b", "v": r"\u000b", " ": " "}
_FLOW_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[\[\]{},]|:(?=\s|$))|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)'"""
    r"""|(?P<plain>[^\s\[\]{},:"'](?:[^\[\]{},:]|:(?!\s|$))*))"""
)


class YamlError(ValueError):
    """Text that is not of this subset."""


class _Line(NamedTuple):
    indent: int
    text: str


def parse(text: str) -> Value:
    """The one document in *text*. Raises YamlError and nothing else."""
    return _Parser(text).document()


class _Parser:
    def __init__(self, text: str) -> None:
        self._lines = [_line(line) for line in text.splitlines()]
        self._at = 0

    def document(self) -> Value:
        value = self._node(0, 0)
        if self._peek() is not None:
            raise YamlError("more than one value, or a line that is not indented like its sisters")
        return value

    def _peek(self) -> _Line | None:
        """The next line that says something."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.text and not line.text.startswith("#"):
                return line
            self._at += 1
        return None

    def _node(self, indent: int, depth: int) -> Value:
        """What starts on the next line, if that is indented by *indent* at least."""
        line = self._peek()
        if line is None or line.indent < indent:
            return None
        if depth > MAX_DEPTH:
            raise YamlError("nested too deeply")
        if _is_item(line.text):
            return self._sequence(line.indent, depth)
        if _split_key(line.text) is not None:
            return self._mapping(line.indent, depth)
        self._at += 1
        return self._scalar(line.text, line.indent - 1)

    def _sequence(self, indent: int, depth: int) -> Value:
        items: list[Value] = []
        while (line := self._peek()) is not None and line.indent == indent and _is_item(line.text):
            inner = line.text[1:].lstrip()
            if inner and not inner.startswith("#"):
                # As if the item stood alone on its line.
                offset = indent + len(line.text) - len(inner)
                self._lines[self._at] = _Line(offset, inner)
                items.append(self._node(offset, depth + 1))
            else:
                self._at += 1
                items.append(self._node(indent + 1, depth + 1))
        return items

    def _mapping(self, indent: int, depth: int) -> Value:
        found: dict[str, Value] = {}
        while (line := self._peek()) is not None and line.indent == indent:
            split = _split_key(line.text)
            if split is None:
                raise YamlError("a line that is no `key: value`")
            key, rest = split
            if key in found:
                raise YamlError("a key twice")
            self._at += 1
            found[key] = self._value(rest, indent, depth)
        return found

    def _value(self, rest: str, indent: int, depth: int) -> Value:
        """What follows `key:`, on its line or below it."""
        if rest and not rest.startswith("#"):
            return self._scalar(rest, indent)
        line = self._peek()
        # A sequence may stand right below its key, without being indented.
        if line is not None and line.indent == indent and _is_item(line.text):
            return self._sequence(indent, depth + 1)
        return self._node(indent + 1, depth + 1)

    def _scalar(self, text: str, indent: int) -> Value:
        block = _BLOCK_SCALAR.match(text)
        if block is not None:
            return self._block(block[1], block[2], indent)
        if text[0] in "[{":
            return _Flow(self._joined(text, indent)).document()
        if text[0] in "\"'":
            return _quoted(self._joined(text, indent))
        if text.startswith(_REFUSED):
            raise YamlError("anchors, aliases and tags are not supported")
        plain = self._joined(_COMMENT.sub("", text), indent).rstrip()
        return None if plain in _NULLS else plain

    def _joined(self, text: str, indent: int) -> str:
        """A scalar and its continuation: the lines below that are indented more."""
        parts = [text.rstrip()]
        while (line := self._peek()) is not None and line.indent > indent:
            parts.append(_COMMENT.sub("", line.text).rstrip())
            self._at += 1
        return " ".join(parts)

    def _block(self, style: str, chomp: str, indent: int) -> str:
        lines: list[str] = []
        width: int | None = None
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.text and line.indent <= indent:
                break
            if line.text and width is None:
                width = line.indent
            lines.append(" " * (line.indent - (width or 0)) + line.text)
            self._at += 1
        text = "\n".join(lines).rstrip("\n")
        if style == ">":
            text = re.sub(r"(?<=\S)\n(?=\S)", " ", text)
        return text + ("" if chomp == "-" else "\n")


class _Flow:
    """`[a, b]` and `{a: b}`."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(_COMMENT.sub("", text))
        self._at = 0

    def document(self) -> Value:
        value = self._value(0)
        if self._at != len(self._tokens):
            raise YamlError("text after a closing bracket")
        return value

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise YamlError("a bracket is not closed")
        self._at += 1
        return self._tokens[self._at - 1]

    def _value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise YamlError("nested too deeply")
        kind, text = self._next()
        if (kind, text) == ("mark", "["):
            return self._list(depth)
        if (kind, text) == ("mark", "{"):
            return self._dict(depth)
        if kind == "mark":
            raise YamlError(f"unexpected `{text}`")
        return None if kind == "plain" and text in _NULLS else text

    def _list(self, depth: int) -> Value:
        items: list[Value] = []
        while not self._closes("]"):
            items.append(self._value(depth + 1))
            self._separate("]")
        return items

    def _dict(self, depth: int) -> Value:
        found: dict[str, Value] = {}
        while not self._closes("}"):
            kind, key = self._next()
            if kind == "mark" or self._next() != ("mark", ":"):
                raise YamlError("a mapping in braces needs `key: value`")
            found[key] = self._value(depth + 1)
            self._separate("}")
        return found

    def _closes(self, bracket: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("mark", bracket):
            self._at += 1
            return True
        return False

    def _separate(self, bracket: str) -> None:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("mark", bracket):
            return
        if self._next() != ("mark", ","):
            raise YamlError("a comma is missing")


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _FLOW_TOKEN.match(text, at)
        if match is None:
            raise YamlError("brackets that cannot be read")
        at = match.end()
        kind = match.lastgroup or ""
        if kind == "mark":
            found.append((kind, match[kind]))
        elif kind == "plain":
            found.append((kind, match[kind].rstrip()))
        else:
            quote = '"' if kind == "double" else "'"
            found.append(("quoted", _text(quote + match[kind] + quote)))
    return found


def _line(raw: str) -> _Line:
    text = raw.lstrip(" ")
    if text.startswith("\t"):
        raise YamlError("a tab where blanks indent")
    return _Line(len(raw) - len(text), text.rstrip())


def _split_key(text: str) -> tuple[str, str] | None:
    """The key and what follows its colon; None when the line has none."""
    if text[0] in "\"'":
        quoted = _QUOTED.match(text)
        colon = _QUOTED_KEY.match(text, quoted.end()) if quoted is not None else None
        if quoted is None or colon is None:
            return None
        return _text(quoted[0]), text[colon.end() :]
    colon = _COLON.search(text)
    if colon is None or colon.start() == 0 or text.startswith(_INDICATORS):
        return None
    key = text[: colon.start()].rstrip()
    return None if " #" in key else (key, text[colon.end() :])


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _quoted(text: str) -> str:
    """A quoted scalar, behind which nothing but a comment may follow."""
    match = _QUOTED.match(text)
    if match is None or _COMMENT.sub("", text[match.end() :]).strip():
        raise YamlError("a quote is not closed, or closed too soon")
    return _text(match[0])


def _text(token: str) -> str:
    """A key or a whole quoted scalar, without its quotes."""
    if token[:1] == "'":
        return token[1:-1].replace("''", "'")
    if token[:1] == '"':
        try:
            return str(json.loads(_ESCAPE.sub(_as_json, token), strict=False))
        except ValueError as exc:
            raise YamlError("an escape that is unknown") from exc
    return token


def _as_json(escape: re.Match[str]) -> str:
    """An escape of YAML's in JSON's way, where that has another."""
    code = escape[1]
    if code[0] == "x":
        return f"\\u00{code[1:]}"
    return _ESCAPES.get(code, escape[0])
