"""Marks of shells are found, however the output is split."""

from __future__ import annotations

import random

from exec_server.screens.command_marks import Mark, MarkScanner, command_of, exit_code_of

_OUTPUT = (
    b"\x1b]7;file://host/tmp/a%20b\x1b\\\x1b]133;A\x07$ \x1b]133;B\x07ls\r\n"
    b"\x1b]133;C;cmdline_url=ls%20-l\x07file\r\n\x1b]133;D;2\x07\x1b]2;title\x07\x1b]133;Z\x07\x1b[31m"
)
_MARKS = [
    Mark("cwd", "/tmp/a b"),
    Mark("A"),
    Mark("B"),
    Mark("C", "cmdline_url=ls%20-l"),
    Mark("D", "2"),
]


def test_marks_are_found_wherever_the_output_is_cut():
    for seed in range(200):
        choose = random.Random(seed)
        cuts = sorted(choose.randrange(len(_OUTPUT)) for _ in range(choose.randrange(12)))
        scanner, pieces = MarkScanner(), []
        for start, end in zip([0, *cuts], [*cuts, len(_OUTPUT)], strict=True):
            pieces += list(scanner.split(_OUTPUT[start:end]))
        assert b"".join(piece for piece, _ in pieces) == _OUTPUT
        assert [mark for _, mark in pieces if mark is not None] == _MARKS


def test_a_piece_ends_with_its_mark():
    pieces = list(MarkScanner().split(b"a\x1b]133;A\x07b"))
    assert pieces == [(b"a\x1b]133;A\x07", Mark("A")), (b"b", None)]


def test_a_sequence_without_an_end_is_given_up():
    scanner = MarkScanner()
    for _ in range(100):
        list(scanner.split(b"\x1b]133;" + b"x" * 1000))
    assert len(scanner._rest) <= 16 * 1024


def test_values_of_marks():
    assert command_of("aid=1;cmdline_url=echo%20%27a%3Bb%27") == "echo 'a;b'"
    assert command_of("aid=1") is None
    assert [exit_code_of(text) for text in ("0", "130;aid=1", "", "x")] == [0, 130, None, None]
