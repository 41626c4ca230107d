"""A model: versions, changes, waits."""

from __future__ import annotations

import gc
import random

import pytest

from exec_server.client.process.screen_data import screen_of
from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol.screen import ScreenParams, WaitCondition, WaitForParams, WaitForResult
from exec_server.screens import screen_waits
from exec_server.screens.screen_model import ScreenModel
from tests.requirements import requirement
from tests.support.terminal_output import session


class Driven:
    """A model with a clock of its own, whose waits are numbered."""

    def __init__(self, columns: int = 40, rows: int = 6) -> None:
        self.model = ScreenModel(columns, rows, rebuilt=0, now=0.0)
        self.now = 0.0
        self.seq = 0
        self.calls = 0

    def feed(self, data: bytes | str) -> None:
        self.seq += 1
        self.model.feed(self.seq, data.encode() if isinstance(data, str) else data, self.now)

    def lines(self) -> list[str]:
        return [row.text for row in self.model.screen(ScreenParams("p")).lines]

    def version(self) -> int:
        return self.model.screen(ScreenParams("p", lines=False)).version

    def wait(self, *conditions: WaitCondition, after: int | None = None, ms: int | None = None):
        self.calls += 1
        params = WaitForParams("p", list(conditions), ms, after)
        self.model.wait(self.calls, params, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.model.expire(self.now)

    def answer(self) -> WaitForResult | Exception | None:
        """The answer of the last wait; None if it still waits."""
        return dict(self.model.answers).get(self.calls)


@pytest.fixture
def driven():
    made = Driven()
    yield made
    made.model.close()


def text(wanted: str) -> WaitCondition:
    return WaitCondition("text", text=wanted)


def regex(pattern: str) -> WaitCondition:
    return WaitCondition("regex", pattern=pattern)


def matched(answer: object) -> str | None:
    assert isinstance(answer, WaitForResult), answer
    return answer.kind


# process/screen


@requirement("screen:diff")
def test_changes_since_any_version_lead_to_the_full_screen():
    choose = random.Random(3)
    driven = Driven(70, 12)
    data = b"".join(session(seed, 12, 70) for seed in range(1))
    known: dict[int, list[str]] = {}
    position = 0
    while position < len(data):
        size = choose.randrange(1, 400)
        driven.feed(data[position : position + size])
        position += size
        if choose.random() < 0.02:
            resizes = driven.model._resizes + 1
            driven.model.resize(70, choose.randrange(4, 20), resizes)
        if choose.random() < 0.5:
            continue
        full = driven.model.screen(ScreenParams("p"))
        lines = [row.text for row in full.lines]
        if known:
            since = choose.choice(list(known))
            changes = driven.model.screen(ScreenParams("p", since))
            before = list(known[since])
            if not isinstance(changes.rows, int):
                for row in changes.lines:
                    before[row.row] = row.text
                assert before == lines
            else:
                assert len(changes.lines) == len(lines)
        known[full.version] = lines
    driven.model.close()


@requirement("screen:diff")
def test_a_spinner_costs_little(driven):
    import msgspec

    driven.feed("title\r\nworking ")
    version = driven.version()
    for frame in "⠋⠙⠹⠸":
        driven.feed(f"\r{frame} working")
        changes = driven.model.screen(ScreenParams("p", version))
        assert [row.row for row in changes.lines] == [1]
        assert len(msgspec.json.encode(changes)) <= 200
        version = changes.version


@requirement("screen:diff")
def test_a_client_applies_changes_after_a_new_size(driven):
    driven.feed("one\r\ntwo\r\nthree")
    known = screen_of(driven.model.screen(ScreenParams("p", cells=True)))
    for number, rows in enumerate((9, 3, 6), 1):
        driven.model.resize(40, rows, number)
        driven.feed("!")
        changes = driven.model.screen(ScreenParams("p", known.version, cells=True))
        known = screen_of(changes, known)
        whole = screen_of(driven.model.screen(ScreenParams("p", cells=True)))
        assert not changes.full and (known.lines, known.cells) == (whole.lines, whole.cells)


@requirement("screen:wait-stale")
def test_a_version_means_all_output_of_its_number(driven):
    driven.wait(text("word"))
    # The wait ends before the prompt of the same output is seen.
    driven.feed("word\r\n\x1b]133;A\x07$ \x1b]133;B\x07")
    assert matched(driven.answer()) == "text"
    driven.wait(WaitCondition("prompt"), text("$ "), after=driven.version())
    driven.feed("typed")
    assert driven.answer() is None
    driven.feed("\r\n\x1b]133;C\x07\x1b]133;D;0\x07\x1b]133;A\x07# \x1b]133;B\x07")
    assert matched(driven.answer()) == "prompt"


def test_a_version_of_the_future_gives_all_rows(driven):
    driven.feed("hi")
    result = driven.model.screen(ScreenParams("p", 99))
    assert result.full and len(result.lines) == 6


def test_styles_title_cursor_and_history(driven):
    driven.feed("\x1b]2;name\x07" + "".join(f"line {n}\r\n" for n in range(9)) + "\x1b[31mred")
    result = driven.model.screen(ScreenParams("p", cells=True, history=2))
    assert result.title == "name" and result.engine == "ghostty"
    assert result.history == ["line 2", "line 3"]
    assert (result.cursor.row, result.cursor.column) == (5, 3)
    spans = result.lines[5].spans
    assert isinstance(spans, list)
    assert (spans[0].text, spans[0].foreground) == ("red", 1)


def test_lost_output_is_said(driven):
    driven.feed("a\x1b[3")
    assert not driven.model.screen(ScreenParams("p")).inexact
    driven.model.missed(7)
    driven.seq = 7
    driven.feed("b")
    result = driven.model.screen(ScreenParams("p"))
    assert result.inexact and result.lines[0].text == "ab" and result.version == 8


# process/waitFor


@requirement("screen:wait")
def test_text_that_is_there_is_found_at_once(driven):
    driven.feed("one\r\n  two")
    driven.wait(text("two"))
    answer = driven.answer()
    assert matched(answer) == "text"
    assert (answer.matched, answer.row, answer.column, answer.version) == (0, 1, 2, 1)


@requirement("screen:wait")
def test_the_first_condition_that_holds_counts(driven):
    driven.wait(text("nothing"), regex(r"^v\d+"), WaitCondition("exit"))
    driven.feed("x v1")
    assert driven.answer() is None
    driven.feed("\r\nv22 ready")
    answer = driven.answer()
    assert (answer.matched, answer.kind, answer.text) == (1, "regex", "v22")


@requirement("screen:wait")
def test_gone_still_exit_and_the_deadline(driven):
    driven.feed("Loading")
    driven.wait(WaitCondition("gone", text="Loading"))
    assert driven.answer() is None
    driven.feed("\r\x1b[K")
    assert matched(driven.answer()) == "gone"
    driven.wait(WaitCondition("still", ms=500))
    driven.pass_time(0.4)
    driven.feed("x")
    driven.pass_time(0.4)
    assert driven.answer() is None
    driven.pass_time(0.2)
    assert matched(driven.answer()) == "still"
    driven.wait(text("never"), ms=1000)
    assert driven.model.next_deadline() == driven.now + 1
    driven.pass_time(1.1)
    answer = driven.answer()
    assert isinstance(answer, WaitForResult) and answer.matched is None and answer.kind is None
    driven.wait(WaitCondition("exit"))
    driven.model.exited(9, 3, driven.now)
    assert matched(driven.answer()) == "exit" and driven.answer().exit_code == 3


@requirement("screen:wait-stale")
def test_what_was_there_before_does_not_count(driven):
    driven.feed("done\r\n$ ")
    version = driven.version()
    driven.wait(text("done"), after=version)
    driven.feed("make\r\n")
    driven.feed("\x1b[2;1H$ make more\x1b[3;1H")
    assert driven.answer() is None
    driven.feed("all done\r\n")
    assert matched(driven.answer()) == "text" and driven.answer().row == 2


@requirement("screen:wait-stale")
def test_old_text_that_scrolls_is_still_old(driven):
    driven.feed("done\r\n$ ")
    driven.wait(text("done"), after=driven.version())
    for number in range(30):
        driven.feed(f"line {number}\r\n")
    assert driven.answer() is None
    driven.feed("done\r\n")
    assert matched(driven.answer()) == "text"


@requirement("screen:wait")
def test_text_that_leaves_the_screen_at_once_is_found(driven):
    driven.wait(text("BUILD OK"))
    driven.feed("BUILD OK\r\n" + "".join(f"{n}\r\n" for n in range(200)))
    answer = driven.answer()
    assert matched(answer) == "text" and answer.text == "BUILD OK"


@requirement("screen:wait-stale")
def test_after_a_long_time_with_a_full_scrollback(driven):
    driven.feed("".join(f"old {n}\r\n" for n in range(4000)))
    driven.wait(text("old"), after=driven.version())
    driven.feed("".join(f"new {n}\r\n" for n in range(3000)))
    assert driven.answer() is None
    driven.feed("old again")
    assert matched(driven.answer()) == "text"


@requirement("screen:wait-stale")
def test_a_resize_makes_nothing_new(driven):
    driven.feed("a long line that is wrapped when the terminal is narrow: done\r\n$ ")
    driven.wait(text("done"), after=driven.version())
    driven.model.resize(20, 8, 1)
    driven.feed("x")
    assert driven.answer() is None


@requirement("screen:wait-echo")
def test_what_is_typed_at_a_prompt_does_not_count(driven):
    driven.feed("\x1b]133;A\x07$ \x1b]133;B\x07")
    driven.wait(text("hello"), after=driven.version())
    driven.feed("echo hello")
    assert driven.answer() is None
    driven.feed("\r\n\x1b]133;C\x07")
    assert driven.answer() is None
    driven.feed("hello\r\n\x1b]133;D;0\x07")
    assert matched(driven.answer()) == "text" and driven.answer().row == 1


@requirement("screen:wait-prompt")
def test_the_next_prompt_not_the_last_one(driven):
    driven.feed("\x1b]133;A\x07$ \x1b]133;B\x07")
    driven.wait(WaitCondition("prompt"))
    assert matched(driven.answer()) == "prompt"
    driven.wait(WaitCondition("prompt"), after=driven.version())
    driven.feed("ls\r\n\x1b]133;C\x07file\r\n")
    assert driven.answer() is None
    driven.feed("\x1b]133;D;0\x07\x1b]133;A\x07$ \x1b]133;B\x07")
    assert matched(driven.answer()) == "prompt"


@requirement("screen:wait-regex")
def test_a_hostile_pattern_is_refused_and_others_go_on(driven):
    driven.feed("a" * 39)
    driven.wait(regex(r"(a|a)*b|(a+)+c"))
    answer = driven.answer()
    assert isinstance(answer, InvalidParams) and "too long" in str(answer)
    with pytest.raises(InvalidParams, match="pattern is wrong"):
        driven.wait(regex("("))
    driven.wait(regex("a{3}"))
    assert matched(driven.answer()) == "regex"


@requirement("screen:wait-bounds")
def test_a_text_in_every_cell_is_refused_and_others_go_on(monkeypatch):
    monkeypatch.setattr(screen_waits, "REGEX_SECONDS", 0.005)
    driven = Driven(512, 512)
    try:
        driven.feed("a" * 512 * 512)
        # What was there before does not count, so it would be looked for after each output.
        driven.wait(text("a"), after=driven.version())
        answer = driven.answer()
        assert isinstance(answer, InvalidParams) and "too long" in str(answer)
        driven.feed("\x1b[Hb")
        driven.wait(text("b"))
        answer = driven.answer()
        assert isinstance(answer, WaitForResult) and answer.row == 0
    finally:
        driven.model.close()


def test_the_end_of_a_search_is_not_lost_while_garbage_is_collected(monkeypatch):
    monkeypatch.setattr(screen_waits, "REGEX_SECONDS", 0.005)

    def takes_a_while(phase: str, _: object) -> None:
        sum(range(20_000))

    threshold = gc.get_threshold()
    gc.callbacks.append(takes_a_while)
    gc.set_threshold(1)
    try:
        with pytest.raises(InvalidParams, match="too long"):
            screen_waits.found(text("a"), None, "a" * 3_000_000)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(takes_a_while)
    assert gc.isenabled()


def test_places_are_counted_in_rows_and_columns():
    places = screen_waits.found(text("ab"), None, "abab\n\nxab\nab")
    assert [(place.row, place.column) for place in places] == [(0, 0), (0, 2), (2, 1), (3, 0)]


@requirement("screen:wait-bounds")
def test_many_waits_of_one_terminal_cannot_take_all_the_time(driven, monkeypatch):
    driven.wait(text("never"))
    monkeypatch.setattr(screen_waits, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(screen_waits, "EXCESS_SECONDS", 0.0)
    driven.feed("x")
    answer = driven.answer()
    assert isinstance(answer, InvalidParams) and "together" in str(answer)
    # Other conditions cost nothing.
    driven.wait(WaitCondition("still", ms=100))
    driven.pass_time(1.0)
    assert matched(driven.answer()) == "still"


@requirement("screen:wait-regex")
def test_a_slow_pattern_cannot_take_all_the_time(driven):
    driven.wait(regex("never"))
    (wait,) = driven.model.waits
    for _ in range(2000):
        wait.spent(0.0005)
    assert driven.answer() is None
    driven.wait(regex("never"))
    wait = driven.model.waits[-1]
    wait.spent(0.04)
    with pytest.raises(InvalidParams, match="again and again"):
        for _ in range(20):
            wait.spent(0.04)


@requirement("screen:wait")
def test_rows_that_were_searched_are_not_searched_again(driven):
    driven.wait(text("never"), text("the end"))
    for number in range(100):
        driven.feed(f"line {number}\r\n")
    (wait,) = driven.model.waits
    assert len(driven.model._searched(wait)) == 6
    driven.feed("the end\r\n" + "x\r\n" * 50)
    assert matched(driven.answer()) == "text" and driven.answer().matched == 1


def test_waits_are_bounded_and_can_be_cancelled(driven):
    for _ in range(64):
        driven.wait(text("never"))
    with pytest.raises(InvalidRequest, match="64 waits"):
        driven.wait(text("never"))
    driven.model.cancel(7)
    driven.wait(text("never"))
    assert len(driven.model.waits) == 64


# The last command.


@requirement("screen:last-command")
def test_the_last_command_with_its_output(driven):
    assert driven.model.commands.last().state == "none"
    driven.feed("\x1b]7;file://h/tmp\x07\x1b]133;A\x07$ \x1b]133;B\x07ls\r\n")
    driven.feed("\x1b]133;C;cmdline_url=ls%20x\x07one\r\n")
    last = driven.model.commands.last()
    assert (last.state, last.command, last.output) == ("running", "ls x", "one")
    driven.feed("".join(f"{n}\r\n" for n in range(20)) + "\x1b]133;D;2\x07\x1b]133;A\x07$ ")
    last = driven.model.commands.last()
    assert (last.state, last.exit_code, last.cwd) == ("done", 2, "/tmp")
    assert last.output == "\n".join(["one", *map(str, range(20))])


@requirement("screen:last-command")
def test_without_marks_nothing_is_claimed(driven):
    driven.feed("\x1b]133;A\x07$ \x1b]133;B\x07")
    driven.feed("exec sh\r\n# ")
    assert driven.model.commands.last().state == "unconfirmed"
