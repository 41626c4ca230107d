"""Output of a recording from anywhere, as a terminal may get it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.recordings.harmless_output import _LONGEST, HarmlessOutput
from tests.requirements import requirement

KEPT = [
    b"plain text \xc3\xa9\r\n",
    b"\x1b[31m\x1b[2J\x1b[?1049h\x1b[1;1H\x1b(B\x1b7\x1b=",
    b"\x1b]0;title\x07",
    b"\x1b]8;;https://example.com/\x1b\\link\x1b]8;;\x1b\\",
    b"\x1b]4;1;rgb:ff/00/00\x07\x1b]104\x07\x1b]11;#000\x1b\\",
    b"\x1bP0;1q#0~~\x1b\\",
    b"\x1b[22;0t\x1b[23t",
]
DROPPED = [
    b"\x1b]52;c;eA==\x07",
    b"\x1b]52;c;eA==\x1b\\",
    b"\x1b]1337;File=name=eA==:eA==\x07",
    b"\x1b]777;notify;a;b\x07\x1b]9;text\x07\x1b]99;;text\x1b\\",
    b"\x1b]50;font\x07\x1b]\x07\x1b];x\x07\x1b]052;c;eA==\x07",
    # Keys that type a command; sequences for the terminal around tmux.
    b"\x1bP1;1|17/6c730d\x1b\\",
    b"\x1bPtmux;\x1b\x1b]52;c;eA==\x07",
    # What is between the parts of a sequence, and what is removed there, hides nothing.
    b"\x1b\x1b]9;x\x07",
    b"\x1b[\x1b]9;x\x07",
    b"\x1b]8\x1b[5i",
    # Kitty reads a file.
    b"\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
    b"\x1b^text\x1b\\\x1bXtext\x1b\\",
    b"\x1b[8;9999;9999t\x1b[2t\x1b[0;0;t\x1b[i\x1b[5i\x1b[?5i",
    b"\x1b]52;" + b"x" * (2 * _LONGEST) + b"\x07",
]


def shown(*parts: bytes) -> bytes:
    harmless = HarmlessOutput()
    return b"".join(map(harmless.feed, parts))


@requirement("cli/replay:harmless")
@pytest.mark.parametrize("data", KEPT, ids=repr)
def test_what_changes_the_screen_is_shown(data):
    assert shown(data, b"end") == data + b"end"


@requirement("cli/replay:harmless")
@pytest.mark.parametrize("data", DROPPED, ids=lambda data: repr(data[:40]))
def test_what_reaches_further_is_dropped(data):
    assert shown(b"a", data, b"b") == b"ab"
    if len(data) < 100:
        assert shown(*(data[at : at + 1] for at in range(len(data))), b"b") == b"b"


@requirement("cli/replay:harmless")
@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"\x1b\x1b]9;x\x07]52;c;eA==\x07", b"]52;c;eA==\x07"),
        (b"\x1b[\x1b]9;x\x075i", b"5i"),
        (b"\x1b]5\x1b[5i2;c;eA==\x07", b"2;c;eA==\x07"),
        (b"\x1b[5\ni", b"\n"),
        (b"\x1b\r\n]52;c;eA==\x07", b"\r\n"),
        (b"\x1b[3\n1m", b"\n\x1b[31m"),
        ("\x9d52;c;eA==\x9c\x9b5i".encode(), b"52;c;eA==5i"),
    ],
)
def test_no_sequence_is_made_of_parts(data, left):
    assert shown(data) == left


@requirement("cli/replay:harmless")
def test_a_string_that_is_broken_off_hides_nothing_behind_it():
    assert shown(b"\x1b]52;c;eA\x18after\x1b]52;c;eA\x1b[31mred") == b"\x18after\x1b[31mred"


@requirement("cli/replay:harmless")
@given(st.lists(st.sampled_from([*KEPT, *DROPPED[:-2], b"\x1b", b"\x1b]52;", b"\x07"])), st.data())
def test_it_does_not_matter_how_it_is_split(parts, data):
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    while whole[cut - 1 : cut] == b"\xc3":
        cut -= 1
    assert shown(whole[:cut], whole[cut:], b"\x18") == shown(whole + b"\x18")
