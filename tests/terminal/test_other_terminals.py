"""Screens are those of another terminal: a sample of what `make screens` compares."""

from __future__ import annotations

import pytest

from exec_server.terminal import open_engine
from soak.other_terminals import missing, opened
from tests.requirements import requirement

_COLUMNS, _ROWS = 40, 10
# Each begins with a clear screen.
_OUTPUTS = (
    b"one\r\ntwo\r\n\x1b[31mthree\x1b[0m",
    b"a line that is longer than the forty columns of the terminal, so it wraps twice",
    b"\x1b[3;5Hhere\x1b[1;1Hthere\x1b[5G|\x1b[8d-",
    b"\x1b[3;6r" + b"".join(b"line %d\r\n" % number for number in range(20)) + b"\x1b[r",
    b"one two three\x1b[5D\x1b[2P\x1b[3@\x1b[4X",
    b"1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[2L\x1b[4;1H\x1b[1M",
    b"\x1b[?1049h\x1b[Hinside\x1b[?1049loutside",
)


@requirement("screen:other-terminals")
def test_screens_are_those_of_tmux(tmp_path):
    if (why := missing("tmux")) is not None:
        pytest.skip(why)
    ours = open_engine(_COLUMNS, _ROWS)
    with opened("tmux", tmp_path, _COLUMNS, _ROWS) as tmux:
        for output in _OUTPUTS:
            data = b"\x1b[r\x1b[H\x1b[2J" + output
            ours.feed(data)
            shown = tmux.feed(data)
            assert [line.rstrip() for line in shown.lines] == ours.lines(), output
            row, column = shown.cursor
            assert (row, min(column, _COLUMNS - 1)) == (ours.cursor.row, ours.cursor.column)
    ours.close()
