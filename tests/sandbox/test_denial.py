"""The guess whether a process ended because of the sandbox."""

from __future__ import annotations

import time

import pytest

from exec_server.sandbox.denial import is_denied
from tests.requirements import requirement

SIGNS = [
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
]


def denied(exit_code: int, output: bytes = b"") -> bool:
    return is_denied(exit_code, output, b"", output)


@pytest.mark.parametrize("sign", SIGNS)
@requirement("denial:rule")
def test_a_sign_on_any_stream_in_any_case_tells(sign):
    text = b"sh: x: " + sign.title() + b"\n"
    for streams in ((text, b"", b""), (b"", text, b""), (b"", b"", text)):
        assert is_denied(1, *streams)
        assert not is_denied(0, *streams)


@pytest.mark.parametrize("exit_code", [2, 126, 127])
@requirement("denial:rule")
def test_a_sign_counts_even_with_an_ordinary_code(exit_code):
    assert denied(exit_code, b"Permission denied")
    assert not denied(exit_code, b"no such thing")


@requirement("denial:rule")
def test_a_sentence_that_is_whole_only_in_the_order_of_arrival_counts():
    assert is_denied(1, b"permission", b" denied", b"permission denied")
    assert not is_denied(1, b"permission", b" denied", b" deniedpermission")


@requirement("denial:rule")
def test_a_kill_for_a_system_call_is_a_denial_and_other_codes_are_not():
    assert denied(159)
    for exit_code in (-1, 1, 101, 128, 137, 158, 160, 255):
        assert not denied(exit_code, b"something else")


@pytest.mark.parametrize("piece", [b"s", b"permission denie", b"operation not permitte", b"\xff"])
@requirement("denial:rule")
def test_a_full_window_is_searched_quickly(piece):
    output = piece * ((1 << 20) // len(piece))
    began = time.process_time()
    assert not is_denied(1, output, output, output)
    assert time.process_time() - began < 0.5
