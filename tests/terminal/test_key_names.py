"""Keys become the bytes that a terminal sends for them."""

from __future__ import annotations

import re

import pytest

from exec_server.terminal import open_engine
from exec_server.terminal.key_names import KeyModes, encode_keys, parse_key
from tests.requirements import requirement

_PLAIN = KeyModes()


@requirement("screen:keys")
@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("hello", b"hello"),
        ("x", b"x"),
        ("é", "é".encode()),
        ("-", b"-"),
        ("a-b", b"a-b"),
        ("well-known", b"well-known"),
        ("", b""),
        ("enter", b"\r"),
        ("Return", b"\r"),
        ("tab", b"\t"),
        ("shift-tab", b"\x1b[Z"),
        ("esc", b"\x1b"),
        ("backspace", b"\x7f"),
        ("ctrl-backspace", b"\x08"),
        ("ctrl-c", b"\x03"),
        ("Ctrl+C", b"\x03"),
        ("ctrl-[", b"\x1b"),
        ("ctrl-space", b"\x00"),
        ("ctrl--", b"-"),
        ("alt-x", b"\x1bx"),
        ("ctrl-alt-x", b"\x1b\x18"),
        ("shift-a", b"A"),
        ("up", b"\x1b[A"),
        ("ctrl-right", b"\x1b[1;5C"),
        ("page-up", b"\x1b[5~"),
        ("shift-delete", b"\x1b[3;2~"),
        ("f1", b"\x1bOP"),
        ("f12", b"\x1b[24~"),
        ("space", b" "),
    ],
)
def test_the_bytes_of_a_key(key, sent):
    assert encode_keys([key], _PLAIN) == sent


@requirement("screen:keys")
def test_a_text_that_only_looks_like_a_key_is_typed():
    for text in ("up and down", "enter the room", "f13", "ctrl-", "hyper-x", "control-plane"):
        assert parse_key(text) is None
        assert encode_keys([text], _PLAIN) == text.encode()


@requirement("screen:keys")
@pytest.mark.parametrize("text", ["ctrl-nothing", "Ctrl+foo", "shift-ctrl-f13", "alt-ctrl-pageop"])
def test_a_key_with_ctrl_that_does_not_exist_is_an_error(text):
    assert parse_key(text) is None
    with pytest.raises(ValueError, match=f"{re.escape(repr(text))} is not the name of a key"):
        encode_keys([text], _PLAIN)


@pytest.mark.parametrize("name", ["ghostty", "bittty"])
@requirement("screen:keys")
def test_keys_follow_the_modes_in_force(name):
    engine = open_engine(20, 4, engine=name)
    assert engine.encode_keys("up", "home", "ctrl-c") == b"\x1b[A\x1b[H\x03"
    engine.feed(b"\x1b[?1h")
    assert engine.encode_keys("up", "home", "ctrl-up") == b"\x1bOA\x1bOH\x1b[1;5A"
    engine.feed(b"\x1b[?1l\x1b[>1u")
    assert engine.encode_keys("escape", "ctrl-c", "enter", "up", "hi") == (
        b"\x1b[27u\x1b[99;5u\r\x1b[Ahi"
    )
    engine.close()
