"""A dump at any byte, and the bytes that follow, show the same as the whole output."""

from __future__ import annotations

import random
import re

import pytest

from exec_server.terminal import TerminalEngine, open_engine
from exec_server.terminal.restored_modes import RESTORED_MODES
from tests.requirements import requirement
from tests.support.terminal_output import session

_ROWS, _COLUMNS = 24, 70
# DSR, DA, XTVERSION, window reports, DECRQM, colours and DECRQSS.
_QUERY = re.compile(rb"\x1b\[[?>=]?[0-9;]*[nc]|\x1b\[>q|\x1b\[\d+t|\$p|;\?|\x1bP")


def state_of(engine: TerminalEngine) -> tuple:
    modes = [engine.mode(number, is_ansi=is_ansi) for number, is_ansi, _ in RESTORED_MODES]
    drawn = [
        [(span.text, span.columns, span.style) for span in _joined(row.spans)]
        for row in engine.cells()
    ]
    return engine.lines(), drawn, engine.cursor, engine.title, engine.is_alternate, modes


def _joined(spans):
    """Spans without the difference between blanks that were written and erased cells."""
    joined: list = []
    for span in spans:
        if joined and joined[-1].style == span.style:
            last = joined.pop()
            span = span._replace(text=last.text + span.text, columns=last.columns + span.columns)
        joined.append(span)
    return joined


@pytest.mark.parametrize("name", ["ghostty", "bittty"])
@requirement("screen:dump")
def test_a_row_whose_beginning_was_erased_after_a_wrap(name):
    whole, late = open_engine(10, 4, engine=name), open_engine(10, 4, engine=name)
    whole.feed(b"0123456789abcdef\x1b[2;4H\x1b[1K Tab")
    late.feed(whole.dump())
    assert late.lines() == whole.lines()
    assert late.lines()[:2] == ["0123456789", "    Tab"]
    assert state_of(late) == state_of(whole)
    whole.close()
    late.close()


@pytest.mark.parametrize("name", ["ghostty", "bittty"])
@requirement("screen:dump")
def test_a_dump_and_what_follows_show_the_same_as_the_whole_output(name):
    for seed in range(4):
        data = session(seed, _ROWS, _COLUMNS)
        choose = random.Random(seed)
        cuts = sorted(choose.randrange(len(data)) for _ in range(25 if name == "ghostty" else 6))
        whole = open_engine(_COLUMNS, _ROWS, engine=name)
        done = 0
        for cut in cuts:
            whole.feed(data[done:cut])
            done = cut
            dump = whole.dump()
            late = open_engine(_COLUMNS, _ROWS, engine=name)
            late.feed(dump)
            assert state_of(late) == state_of(whole), (seed, cut)
            late.feed(data[cut:])
            complete = open_engine(_COLUMNS, _ROWS, engine=name)
            complete.feed(data)
            assert state_of(late) == state_of(complete), (seed, cut, data[cut - 30 : cut + 30])
            late.close()
            complete.close()
        whole.close()


@pytest.mark.parametrize("name", ["ghostty", "bittty"])
@requirement("screen:dump-no-query")
def test_a_dump_asks_nothing(name):
    answers: list[bytes] = []
    for seed in range(3):
        data = session(seed, _ROWS, _COLUMNS)
        engine = open_engine(_COLUMNS, _ROWS, engine=name)
        # Each of these makes some terminal speak when it is set.
        engine.feed(
            data[: len(data) // 2] + b"\x1b[6n\x1b[c\x1b[?2048h\x1b[?2031h\x1b[?2026h\x1b]11;?"
        )
        late = open_engine(_COLUMNS, _ROWS, engine=name)
        late.on_answer = answers.append
        late.feed(engine.dump(history=50) + b"\x18")
        late.close()
        engine.close()
    assert answers == []


@pytest.mark.parametrize("name", ["ghostty", "bittty"])
@requirement("screen:dump")
def test_a_dump_with_history_has_the_rows_above_the_screen(name):
    engine = open_engine(20, 5, engine=name)
    engine.feed(b"".join(b"line %d\r\n" % number for number in range(30)) + b"end")
    late = open_engine(20, 5, engine=name)
    late.feed(engine.dump(history=10))
    assert late.lines() == ["line 26", "line 27", "line 28", "line 29", "end"]
    above = [line for line in late.history(100) if line]
    assert above[:10] == [f"line {number}" for number in range(16, 26)] == engine.history(10)
    engine.close()
    late.close()


def test_the_keypad_is_switched_as_every_terminal_knows_it():
    engine = open_engine(_COLUMNS, _ROWS)
    engine.feed(b"\x1b=")
    dump = engine.dump()
    assert b"\x1b=" in dump and b"\x1b[?66h" not in dump
    engine.close()
