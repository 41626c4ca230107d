"""Both engines show and answer alike."""

from __future__ import annotations

import random

import pytest

from exec_server.terminal import TerminalEngine, engine_name, open_engine
from exec_server.terminal.answers import safe_answers
from tests.requirements import requirement
from tests.support.terminal_output import session


@pytest.fixture(params=["ghostty", "bittty"])
def engine(request):
    opened = open_engine(40, 6, engine=request.param)
    yield opened
    opened.close()


def test_the_engine_is_ghostty_where_it_can_be_loaded():
    assert engine_name() == "ghostty"


def test_an_unknown_screen_is_empty(engine: TerminalEngine):
    assert engine.lines() == [""] * 6
    assert engine.title == "" and not engine.is_alternate
    assert (engine.cursor.row, engine.cursor.column) == (0, 0)


def test_text_styles_and_title(engine: TerminalEngine):
    engine.feed("\x1b]2;a title\x07plain \x1b[1;31mred\x1b[0m 漢字 é\r\n\x1b[44m\x1b[K".encode())
    first, second = engine.cells()[:2]
    assert engine.lines()[0] == "plain red 漢字 é"
    assert [(span.text, span.columns) for span in first.spans] == [
        ("plain ", 6),
        ("red", 3),
        (" 漢字 é", 7),
    ]
    assert first.spans[1].style.foreground == 1 and first.spans[1].style.bold
    assert sum(span.columns for span in second.spans) == 40
    assert {span.style.background for span in second.spans} == {4}
    assert engine.title == "a title"


def test_bytes_may_be_cut_anywhere(engine: TerminalEngine):
    text = "\x1b[31m漢字\x1b[0m é\x1b[5;3Hhere".encode()
    for byte in text:
        engine.feed(bytes([byte]))
    assert engine.lines()[0] == "漢字 é" and engine.lines()[4] == "  here"


def test_the_alternate_screen_gives_the_other_one_back(engine: TerminalEngine):
    engine.feed(b"before\x1b[?1049h\x1b[Heditor")
    assert engine.is_alternate and engine.lines()[0] == "editor"
    engine.feed(b"\x1b[?1049l")
    assert not engine.is_alternate and engine.lines()[0] == "before"


@requirement("screen:queries")
@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (b"\x1b[c", b"\x1b[?"),
        (b"\x1b[>c", b"\x1b[>"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"\x1b[6n", b"\x1b[1;1R"),
        (b"\x1b]10;?\x07", b"\x1b]10;rgb:"),
        (b"\x1b]11;?\x07", b"\x1b]11;rgb:"),
        (b"\x1b]4;1;?\x07", b"\x1b]4;1;rgb:"),
        (b"\x1b[>q", b"\x1bP>|"),
        (b"\x1b[?2004$p", b"\x1b[?2004;2$y"),
        (b"\x1b[18t", b"\x1b[8;6;40t"),
        (b"\x1b[?u", b"\x1b[?0u"),
        (b"\x1bP$qm\x1b\\", b"\x1bP1$r"),
    ],
)
def test_a_query_has_one_answer(engine: TerminalEngine, query, answer):
    answers: list[bytes] = []
    engine.on_answer = answers.append
    engine.feed(query)
    assert len(answers) == 1 and answers[0].startswith(answer)


@requirement("screen:queries-safe")
def test_a_program_cannot_choose_what_is_typed(engine: TerminalEngine):
    answers: list[bytes] = []
    engine.on_answer = answers.append
    engine.feed(b"\x1b]2;rm -rf x\x07\x1b[21t\x1b[20t\x1b]52;c;?\x07rm -rf x\r\n\x1b[2i\x1b[i\x05")
    engine.feed(b"\x1bP+q726d\x1b\\\x1b]7;rm\x07")
    assert b"rm" not in b"".join(answers)


def test_only_answers_of_known_form_pass():
    assert safe_answers(b"\x1b]lrm -rf\x1b\\\x1b[0n") == b"\x1b[0n"
    assert safe_answers(b"\x1b]52;c;cm0=\x07") == b""
    assert safe_answers(b"\x1b]11;rgb:10/10/10\x1b\\") == b"\x1b]11;rgb:10/10/10\x1b\\"


def test_hostile_bytes_and_sizes_do_no_harm(engine: TerminalEngine):
    choose = random.Random(7)
    for _ in range(60):
        engine.feed(choose.randbytes(200) + session(choose.randrange(9), 6, 40)[:300])
        engine.resize(choose.randrange(1, 90), choose.randrange(1, 40))
        assert len(engine.lines()) == engine.rows
        engine.dump(history=5)


def test_a_row_says_whether_it_goes_on(engine: TerminalEngine):
    engine.feed(b"w" * 50 + b"\r\nshort")
    assert [row.is_wrapped for row in engine.cells()][:3] == [True, False, False]


def test_what_is_typed_at_a_prompt_is_told_apart():
    engine = open_engine(40, 6, engine="ghostty")
    engine.feed(b"\x1b]133;A\x07$ \x1b]133;B\x07echo hi\x1b]133;C\x07\r\nhi\r\n\x1b]133;D;0\x07")
    assert engine.has_zones
    assert [row.output for row in engine.cells()][:2] == ["$", "hi"]
    assert engine.lines()[:2] == ["$ echo hi", "hi"]
    engine.close()


@requirement("screen:doctor")
def test_doctor_says_which_engine_there_is():
    from exec_server.cli.sandbox.terminal_check import terminal_check

    assert terminal_check().found == "libghostty-vt"
    fallback = terminal_check("bittty")
    assert fallback.works and "pure Python" in (fallback.found or "") and fallback.remedy
