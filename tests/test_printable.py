"""Texts of peers in logs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.printable import ShortDigest, escaped, printable, short_digest

any_text = st.text(st.characters(exclude_categories=[]))


@given(st.one_of(any_text, st.binary(max_size=2000)), st.integers(1, 300))
def test_any_text_becomes_one_bounded_line(text, limit):
    shown = printable(text, limit=limit)
    assert shown.isprintable()
    assert len(shown) <= limit + len("...")
    shown.encode()


@given(any_text)
def test_what_is_printable_stays_as_it_is(text):
    assert escaped(text).isprintable()
    assert escaped(escaped(text)) == escaped(text)
    if text.isprintable():
        assert escaped(text) == text


def test_a_long_text_is_cut_and_says_so():
    assert printable("a" * 10, limit=10) == "a" * 10
    assert printable("a" * 11, limit=10) == "a" * 10 + "..."
    assert printable(b"\xff\n") == "\\xff\\n"


def test_a_digest_is_short_and_does_not_contain_the_secret():
    assert short_digest("a") != short_digest("b")
    assert len(short_digest("secret")) == 12
    assert short_digest("secret") == short_digest("secret")
    short_digest("\udc80")
    assert f"{ShortDigest('secret')}" == short_digest("secret")
