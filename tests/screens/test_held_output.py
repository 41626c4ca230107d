"""A model that was fed with the end of a flood alone shows what one does that was fed with all."""

from __future__ import annotations

import random

import pytest

from exec_server.protocol.screen import LastCommand, ScreenParams, WaitCondition, WaitForParams
from exec_server.screens.held_output import LEAST_BYTES, HeldOutput, only_scrolls
from exec_server.screens.screen_model import ScreenModel
from exec_server.terminal import TerminalEngine, open_engine

pytest.importorskip("pyghostty")

_COLORS = (b"\x1b[0m", b"\x1b[m", b"\x1b[1m", b"\x1b[31m", b"\x1b[48;5;200m", b"\x1b[4:3m")


def _flood(random_: random.Random, size: int, columns: int) -> bytes:
    """Lines of all lengths, some of them in colours that go on in the next ones."""
    has_colors = random_.random() < 0.7
    lines, length = [], 0
    while length < size:
        words = [b"%d" % random_.randrange(10**6), b"x" * random_.randrange(2 * columns)]
        if has_colors and random_.random() < 0.3:
            words.insert(random_.randrange(3), random_.choice(_COLORS))
        line = b" ".join(words) + random_.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"))
        lines.append(line)
        length += len(line)
    return b"".join(lines)


def _shown(engine: TerminalEngine) -> tuple[object, ...]:
    return engine.cells(), engine.cursor, engine.is_alternate, engine.history(400), engine.dump()


@pytest.mark.parametrize("seed", range(40))
def test_the_end_of_a_flood_is_enough(seed):
    random_ = random.Random(seed)
    columns, rows = random_.choice(((80, 24), (200, 50), (20, 5), (133, 2)))
    model = ScreenModel(columns, rows, rebuilt=0, now=0.0)
    whole = open_engine(columns, rows)
    before = random_.choice(
        (b"", b"\x1b[2;4rtop\x1b[4;1H", b"\x1b[?1049hedit", b"\x1b[31mred", b"\x1b[?7lnarrow")
    )
    after = random_.choice((b"", b"ready> ", b"\x1b[H\x1b[Jgone", b"\x1b[1"))
    data = before + _flood(random_, 900_000, columns) + after
    seq = at = 0
    while at < len(data):
        size = random_.choice((1, 300, 20_000, 60_000))
        seq += 1
        model.feed(seq, data[at : at + size], 0.0)
        at += size
    whole.feed(data)
    model.settle()
    assert _shown(model.engine) == _shown(whole)
    assert model.seq == seq
    model.close()
    whole.close()


def test_most_of_a_flood_is_never_fed():
    model = ScreenModel(80, 24, rebuilt=0, now=0.0)
    fed: list[int] = []
    feed = model.engine.feed
    model.engine.feed = lambda data: (fed.append(len(data)), feed(data))[1]  # type: ignore[method-assign, func-returns-value]
    line = b"\x1b[01;34ma line\x1b[0m of output with some words in it\r\n"
    flood = line * (6_000_000 // len(line) + 1)
    for seq in range(1, 101):
        # Parts end inside sequences, too.
        begin = (seq - 1) * 60_000
        model.feed(seq, flood[begin : begin + 60_000], 0.0)
    assert sum(fed) == 0
    model.settle()
    assert sum(fed) < 400_000
    model.close()


@pytest.mark.parametrize(
    ("data", "is_true"),
    [
        (b"text\r\n\tmore\x08", True),
        (b"\x1b[0;1;38:2::1:2:3mred\x1b[m", True),
        (b"\x1b[6n", False),
        (b"\x1b[>4;2m", False),
        (b"\x1b[?4m", False),
        (b"\x1b7[m", False),
        (b"\x1b[31", False),
        (b"\x1b\x1b[m", False),
        (b"\x1b]0;title\x07", False),
        (b"\x1b[1\x1b[m", False),
        (b"\x05", False),
        (b"\x0e", False),
        ("é".encode(), False),
        (b"\x9b6n", False),
    ],
)
def test_only_text_and_colours_scroll(data, is_true):
    assert only_scrolls(data) is is_true


def test_a_query_in_the_middle_of_a_flood_is_answered_at_once():
    model = ScreenModel(80, 24, rebuilt=0, now=0.0)
    answers: list[bytes] = []
    model.engine.on_answer = answers.append
    line = b"a line\r\n"
    model.feed(1, line * LEAST_BYTES, 0.0)
    model.feed(2, line * 1000 + b"\x1b[", 0.0)
    model.feed(3, b"6n", 0.0)
    assert answers == [b"\x1b[24;1R"]
    # The beginning of a sequence that the engine has is not text.
    model.feed(4, b"\x1b[", 0.0)
    model.feed(5, b"6n" + line * LEAST_BYTES, 0.0)
    assert len(answers) == 2
    model.close()


def test_a_mark_that_is_cut_in_a_flood_is_seen():
    model = ScreenModel(80, 24, rebuilt=0, now=0.0)
    model.feed(1, b"a line\r\n" * LEAST_BYTES + b"\x1b", 0.0)
    model.feed(2, b"]133;A\x07$ \x1b]133;B\x07", 0.0)
    assert model.commands.is_at_prompt
    model.feed(3, b"\x1b]133;C\x07" + b"a line\r\n" * LEAST_BYTES, 0.0)
    model.feed(4, b"a line\r\n" * LEAST_BYTES + b"\x1b", 0.0)
    # A question lets the engine have what is unfinished.
    assert model.screen(ScreenParams("p")).version == 4
    model.feed(5, b"]133;D;7\x07", 0.0)
    last = model.screen(ScreenParams("p", command=True)).command
    assert isinstance(last, LastCommand)
    assert last.exit_code == 7
    model.close()


def test_a_wait_sees_what_was_held_and_what_follows():
    model = ScreenModel(80, 24, rebuilt=0, now=0.0)
    model.feed(1, b"a line\r\n" * LEAST_BYTES + b"the end", 0.0)
    model.wait(1, WaitForParams("p", [WaitCondition("text", text="the end")]), 0.0)
    model.wait(2, WaitForParams("p", [WaitCondition("text", text="needle")]), 0.0)
    model.feed(2, b"a line\r\n" * LEAST_BYTES + b"needle\r\n" + b"b\r\n" * LEAST_BYTES, 0.0)
    assert [call for call, _ in model.answers] == [1, 2]
    model.close()


@pytest.mark.parametrize("columns", [20, 80, 200, 500])
def test_a_wait_finds_a_short_line_in_a_flood_of_short_lines(columns):
    model = ScreenModel(columns, 24, rebuilt=0, now=0.0)
    model.feed(1, b"begin\r\n", 0.0)
    wanted = [f"^{number}$" for number in range(1, 9000, 997)]
    for call, pattern in enumerate(wanted):
        model.wait(call, WaitForParams("p", [WaitCondition("regex", pattern=pattern)]), 0.0)
    model.feed(2, b"".join(b"%d\r\n" % number for number in range(9000)), 0.0)
    assert [call for call, _ in model.answers] == list(range(len(wanted)))
    model.close()


@pytest.mark.parametrize(("columns", "rows"), [(5, 5), (80, 24), (80, 2), (133, 40), (500, 100)])
def test_the_engine_keeps_and_forgets_as_many_rows_as_it_says(columns, rows):
    engine = open_engine(columns, rows)
    assert engine.forgets_after is not None
    for number in range(3 * engine.forgets_after):
        engine.feed(b"%d\r\n" % (number % 10_000))
        if number > 2 * engine.forgets_after and number % 97 == 0:
            kept = len(engine.history(10**6))
            assert engine.rows_kept <= kept <= engine.forgets_after - rows
    engine.close()


def test_what_is_held_is_bounded():
    # Colours that are never reset, and rows that nothing moves up, are fed before it is much.
    flood = HeldOutput(lambda: None)
    for _ in range(20):
        flood.add(b"a line\r\n" * 8000)
        if flood.is_too_much:
            break
    assert len(flood.take()) < 512 * 1024
    # The second begins no line at the left edge, after the first part.
    for part in (b"\x1b[31ma line\r\n" * 4000, b"a line\n" * 8000):
        flood = HeldOutput(lambda: 2400)
        flood.add(b"a line\r\n" * 4000)
        for _ in range(100):
            flood.add(part)
            if flood.is_too_much:
                break
        assert len(flood.take()) < 2 << 20
        assert not flood
