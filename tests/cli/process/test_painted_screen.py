"""Pictures of terminals that have another size than the terminal here."""

from __future__ import annotations

import pytest

from exec_server.cli.process.own_terminal.painted_screen import fitting
from exec_server.protocol.base64 import Blob
from exec_server.protocol.sharing import ScreenPicture
from exec_server.terminal import TerminalEngine, open_engine
from tests.requirements import requirement

LINES = b"a line that is longer than one row\r\nshort\r\n" * 2 + b"\x1b[31mthe last of these\x1b[m"


def painted(data: bytes, columns: int, rows: int) -> list[str]:
    terminal = open_engine(columns, rows)
    try:
        terminal.feed(data)
        return terminal.lines()
    finally:
        terminal.close()


@pytest.fixture
def narrow():
    terminal = open_engine(20, 10)
    yield terminal
    terminal.close()


@requirement("sharing/prompt:sizes")
@pytest.mark.parametrize("before", [b"", b"\x1b[?1049h\x1b[H"], ids=["primary", "alternate"])
def test_a_wider_terminal_shows_the_rows_where_they_are(narrow: TerminalEngine, before: bytes):
    narrow.feed(before + LINES)
    picture = ScreenPicture(Blob(narrow.dump()), seq=1, rows=10, cols=20, version=1)
    rows = narrow.lines()
    assert rows[:2] == ["a line that is longe", "r than one row"]
    assert painted(fitting(picture, 20), 20, 10) == rows
    assert painted(fitting(picture, 35), 35, 10) == rows
    assert painted(fitting(picture, None), 20, 10) == rows


@requirement("sharing/prompt:sizes")
def test_a_terminal_of_the_same_size_keeps_the_lines_together(narrow: TerminalEngine):
    narrow.feed(LINES)
    picture = ScreenPicture(Blob(narrow.dump()), seq=1, rows=10, cols=20, version=1)
    same = open_engine(20, 10)
    try:
        same.feed(fitting(picture, 20))
        assert [row.is_wrapped for row in same.cells()] == [
            row.is_wrapped for row in narrow.cells()
        ]
    finally:
        same.close()
