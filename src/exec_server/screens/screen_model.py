"""One terminal in the host: its versions, what changed since each, and the waits for it.

This module is long because versions, changes and waits all read the same state, in one order.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol.screen import (
    CursorPlace,
    KeyModesInForce,
    ScreenColor,
    ScreenParams,
    ScreenResult,
    ScreenRow,
    ScreenSpan,
    WaitForParams,
    WaitForResult,
)
from exec_server.screens.command_marks import MarkScanner
from exec_server.screens.held_output import LEAST_BYTES, HeldOutput
from exec_server.screens.last_command import CommandTracker
from exec_server.screens.screen_waits import Baseline, MatchPlace, PendingWait, SearchBudget, found
from exec_server.terminal import Row, open_engine
from exec_server.terminal.cells import CellSpan, Color

# While a text is waited for, output comes in slices, so that no row leaves the scrollback unseen.
_SLICE_BYTES = 4096
_LEAST_SLICE_BYTES = 64
# Versions that were told and can be the `after` of a wait.
_MAX_BASELINES = 32
_MAX_WAITS = 64


class ScreenModel:
    """One terminal; *version* is the number of the last output, plus the sizes that it had."""

    def __init__(self, columns: int, rows: int, *, rebuilt: int, now: float) -> None:
        self.engine = open_engine(columns, rows)
        self.rebuilt = rebuilt
        # True if output was missed, or if the terminal is larger than models are.
        self.is_inexact = (self.engine.columns, self.engine.rows) != (columns, rows)
        self.waits: list[PendingWait] = []
        self._budget = SearchBudget(now)
        # Set for the calls that are answered: the number of the call, and the answer or its error.
        self.answers: list[tuple[int, WaitForResult | Exception]] = []
        # Versions that waits begin after; baselines are kept for them when they come.
        self.wanted: list[int] = []
        self.seq = 0
        self.fed_bytes = 0
        # The beginning of output that has not come completely.
        self.held = b""
        # Output that the engine has not got yet; `settle` gives it to it.
        self._flood = HeldOutput(lambda: self.engine.forgets_after)
        self._resizes = 0
        self._scanner = MarkScanner()
        self.commands = CommandTracker(self.engine)
        self._last_output = now
        self._exit: tuple[bool, int | None] = (False, None)
        self._drawn: list[Row] = []
        self._row_versions: list[int] = []
        self._facts: dict[str, tuple[Any, int]] = {}
        self._baselines: OrderedDict[int, Baseline] = OrderedDict()

    @property
    def version(self) -> int:
        return self.seq + self._resizes

    # What happens to it.

    def feed(self, seq: int, data: bytes, now: float) -> None:
        """Take output; *seq* is its number."""
        if self._can_hold(data) and self._flood.add(data):
            self._held(seq, len(data), now)
            return
        # The marks are looked for in whole sequences.
        data = self._flood.unfinished + data
        self._flood.unfinished = b""
        self.settle()
        if self.wanted and seq + self._resizes > self.wanted[0]:
            self._remember_baseline()
            self.wanted = [version for version in self.wanted if version >= seq + self._resizes]
        self.seq = seq
        self.fed_bytes += len(data)
        self._last_output = now
        slices = any(wait.reads_text for wait in self.waits)
        for piece, mark in self._scanner.split(data):
            for part in self._slices(piece) if slices else (piece,):
                self.engine.feed(part)
                if slices:
                    self._check_waits(now)
            self.commands.printed(piece)
            if mark is not None:
                self.commands.marked(mark, self.version)
        early = self._baselines.get(self.version)
        if early is not None:
            # A wait has ended in the middle of this output; the version means all of it.
            self._set_baseline(early)
        self._check_waits(now)

    def _slices(self, data: bytes) -> Iterator[bytes]:
        """*data* in parts, none of which moves more rows up than are kept."""
        columns, kept = self.engine.columns, self.engine.rows_kept
        at = 0
        while at < len(data):
            size = _SLICE_BYTES
            while size > _LEAST_SLICE_BYTES and (
                data.count(b"\n", at, at + size) + size // columns > kept
            ):
                size //= 2
            yield data[at : at + size]
            at += size

    def _can_hold(self, data: bytes) -> bool:
        """True if nothing waits for *data*."""
        if self.waits or self.wanted or self.commands.is_at_prompt or self._scanner.has_begun:
            return False
        if self._flood:
            return True
        return len(data) >= LEAST_BYTES and self.engine.is_between_sequences

    def _held(self, seq: int, size: int, now: float) -> None:
        self.seq = seq
        self.fed_bytes += size
        self._last_output = now
        if self._flood.is_too_much:
            self.settle()

    def settle(self) -> None:
        """Let the engine have all output so far; everything that reads from it begins with this."""
        flood = self._flood
        if flood:
            self.engine.feed(flood.take())
        if flood.unfinished:
            unfinished, flood.unfinished = flood.unfinished, b""
            for piece, _ in self._scanner.split(unfinished):
                self.engine.feed(piece)

    def missed(self, seq: int) -> None:
        """Output up to *seq* was lost: end a sequence that has begun, and say so from now on."""
        self.settle()
        self.is_inexact = True
        self.seq = seq
        self.engine.feed(b"\x18")

    def resize(self, columns: int, rows: int, resizes: int) -> None:
        self.settle()
        self.engine.resize(columns, rows)
        self.is_inexact |= (self.engine.columns, self.engine.rows) != (columns, rows)
        self._resizes = resizes
        # Rows have moved; what is shown now is what was there before.
        for baseline in {id(b): b for b in self._all_baselines()}.values():
            self._set_baseline(baseline)

    def exited(self, seq: int, exit_code: int | None, now: float) -> None:
        self.settle()
        self.seq = max(self.seq, seq)
        self._exit = (True, exit_code)
        self._check_waits(now)

    def close(self) -> None:
        for baseline in {id(b): b for b in self._all_baselines()}.values():
            self.engine.forget(baseline.top)
        self.commands.close()
        self.engine.close()

    # process/screen

    def screen(self, params: ScreenParams) -> ScreenResult:
        """What is shown, or what changed since a version."""
        self.settle()
        self._draw()
        version = self.version
        self._remember_baseline()
        since = params.since
        is_full = since is None or since > version or not self._row_versions
        changed = [
            number
            for number, changed_at in enumerate(self._row_versions)
            if is_full or (since is not None and changed_at > since)
        ]
        result = ScreenResult(version, [], self._cursor(), full=is_full)
        if params.lines:
            result.lines = [self._row(number, cells=params.cells) for number in changed]
        result.alternate = self.engine.is_alternate
        result.inexact, result.rebuilt = self.is_inexact, self.rebuilt
        for name, (value, changed_at) in self._facts.items():
            if is_full or (since is not None and changed_at > since):
                setattr(result, name, value)
        if params.history:
            result.history = self.engine.history(params.history)
        if params.command:
            result.command = self.commands.last()
        return result

    def _draw(self) -> None:
        """Find out which rows have changed since this was called last."""
        rows, version = self.engine.cells(), self.version
        if len(rows) != len(self._drawn):
            self._row_versions = [version] * len(rows)
        else:
            for number, (new, old) in enumerate(zip(rows, self._drawn, strict=True)):
                if new != old:
                    self._row_versions[number] = version
        self._drawn = rows
        modes = self.engine.key_modes
        in_force = KeyModesInForce(
            modes.is_cursor_application, modes.is_backarrow, modes.kitty_flags
        )
        for name, value in (
            ("rows", self.engine.rows),
            ("columns", self.engine.columns),
            ("title", self.engine.title),
            ("engine", self.engine.name),
            ("key_modes", in_force),
        ):
            if name not in self._facts or self._facts[name][0] != value:
                self._facts[name] = (value, version)

    def _cursor(self) -> CursorPlace:
        cursor = self.engine.cursor
        return CursorPlace(
            cursor.row, cursor.column, cursor.is_visible, cursor.shape, cursor.is_blinking
        )

    def _row(self, number: int, *, cells: bool) -> ScreenRow:
        row = self._drawn[number]
        told = ScreenRow(number, row.text, wrapped=row.is_wrapped)
        if cells:
            told.spans = [_span(span) for span in row.spans]
        return told

    # Versions that a wait may begin after.

    def _remember_baseline(self) -> Baseline:
        version = self.version
        baseline = self._baselines.get(version)
        if baseline is None:
            baseline = self._new_baseline()
            self._baselines[version] = baseline
            if len(self._baselines) > _MAX_BASELINES:
                _, oldest = self._baselines.popitem(last=False)
                if all(wait.baseline is not oldest for wait in self.waits):
                    self.engine.forget(oldest.top)
        return baseline

    def _new_baseline(self) -> Baseline:
        engine = self.engine
        prompts = self.commands.prompts
        return Baseline(self.version, engine.mark(0), engine.is_alternate, self._lines(), prompts)

    def _set_baseline(self, baseline: Baseline) -> None:
        self.engine.forget(baseline.top)
        baseline.top = self.engine.mark(0)
        baseline.is_alternate, baseline.lines = self.engine.is_alternate, self._lines()
        if baseline.version == self.version:
            baseline.prompts = self.commands.prompts

    def _all_baselines(self) -> list[Baseline]:
        waited = [wait.baseline for wait in self.waits if wait.baseline is not None]
        return [*self._baselines.values(), *waited]

    def _lines(self) -> list[str]:
        """The rows as they are searched: what was typed at a prompt does not count."""
        engine = self.engine
        is_marked = self.commands.has_marks and not self.commands.is_unconfirmed
        return engine.output_lines() if is_marked else engine.lines()

    # process/waitFor

    def wait(self, call: int, params: WaitForParams, now: float) -> None:
        """Begin a wait; the answer is among `answers` then, now or later."""
        self.settle()
        if len(self.waits) >= _MAX_WAITS:
            raise InvalidRequest(f"the process has {_MAX_WAITS} waits already")
        wait = PendingWait(call, params, now=now)
        known = self._known(params.after)
        wait.baseline = known or self._new_baseline()
        if known is None and params.after is not None and params.after < self.version:
            # What was shown at that version is not known any more, so everything counts.
            wait.is_after = False
        self.waits.append(wait)
        self._check_waits(now)

    def _known(self, after: int | None) -> Baseline | None:
        """The last baseline up to the version *after*."""
        if after is None:
            return None
        known = [version for version in self._baselines if version <= after]
        return self._baselines[max(known)] if known else None

    def cancel(self, call: int) -> None:
        for wait in [wait for wait in self.waits if wait.call == call]:
            self._end(wait)

    def next_deadline(self) -> float | None:
        """When a wait ends without further output."""
        times = [
            at for each in self.waits for at in (each.deadline, each.still_at(self._last_output))
        ]
        return min((at for at in times if at is not None), default=None)

    def expire(self, now: float) -> None:
        self._check_waits(now)

    def _check_waits(self, now: float) -> None:
        if self.waits:
            self._budget.begin(now)
            self._look_at_waits(now)
            self._budget.end()

    def _look_at_waits(self, now: float) -> None:
        for wait in tuple(self.waits):
            try:
                if wait.reads_text:
                    self._budget.check()
                result = self._outcome(wait, now)
            except InvalidParams as exc:
                self._answer(wait, exc)
                continue
            if result is not None:
                result.inexact = self.is_inexact
                self._answer(wait, result)
            elif wait.deadline is not None and now >= wait.deadline:
                self._answer(wait, WaitForResult(self.version, inexact=self.is_inexact))

    def _answer(self, wait: PendingWait, answer: WaitForResult | Exception) -> None:
        self._end(wait)
        if isinstance(answer, WaitForResult):
            self._remember_baseline()
        self.answers.append((wait.call, answer))

    def _end(self, wait: PendingWait) -> None:
        self.waits.remove(wait)
        baseline = wait.baseline
        assert baseline is not None
        if all(baseline is not kept for kept in self._all_baselines()):
            self.engine.forget(baseline.top)

    def _outcome(self, wait: PendingWait, now: float) -> WaitForResult | None:
        rows: list[str] | None = None
        for number, condition in enumerate(wait.params.conditions):
            if condition.kind in ("text", "regex", "gone"):
                rows = self._searched(wait) if rows is None else rows
                result = self._text_outcome(wait, number, rows)
            else:
                result = self._other_outcome(wait, number, now)
            if result is not None:
                return result
        if rows is not None:
            self._advance(wait, len(rows) - self.engine.rows)
        return None

    def _advance(self, wait: PendingWait, above: int) -> None:
        """The rows above the screen were searched: go on below them the next time."""
        baseline = wait.baseline
        if above <= 0 or baseline is None:
            return
        top, lines = self.engine.mark(0), baseline.lines[above:]
        wait.baseline = replace(baseline, top=top, lines=lines)
        if all(baseline is not kept for kept in self._all_baselines()):
            self.engine.forget(baseline.top)

    def _searched(self, wait: PendingWait) -> list[str]:
        """The rows from the top of the baseline's screen on; those of this one if it is gone."""
        baseline = wait.baseline
        assert baseline is not None
        above = 0
        if not self.engine.is_alternate and not baseline.is_alternate:
            row = self.engine.row_of(baseline.top)
            if row is None:
                # So much was printed that nothing of it is left.
                baseline.lines = []
            else:
                above = max(0, -row)
        return (self.engine.history(above) if above else []) + self._lines()

    def _text_outcome(
        self, wait: PendingWait, number: int, rows: list[str]
    ) -> WaitForResult | None:
        condition, pattern = wait.params.conditions[number], wait.patterns[number]
        baseline = wait.baseline
        assert baseline is not None
        above = len(rows) - self.engine.rows
        if condition.kind == "gone":
            is_gone = not any((condition.text or "") in line for line in rows[max(above, 0) :])
            is_new = not wait.is_after or self.version > baseline.version
            return self._matched(wait, number) if is_gone and is_new else None
        began = time.thread_time()
        places = found(condition, pattern, "\n".join(rows))
        if pattern is not None:
            wait.spent(time.thread_time() - began)
        if wait.is_after and places and baseline.is_alternate == self.engine.is_alternate:
            known = set(found(condition, pattern, "\n".join(baseline.lines)))
            places = [place for place in places if place not in known]
        if not places:
            return None
        return self._matched(wait, number, places[-1], above)

    def _other_outcome(self, wait: PendingWait, number: int, now: float) -> WaitForResult | None:
        condition, baseline = wait.params.conditions[number], wait.baseline
        assert baseline is not None
        has_exited, exit_code = self._exit
        if condition.kind == "exit" and has_exited:
            result = self._matched(wait, number)
            result.exit_code = exit_code
            return result
        if condition.kind == "prompt" and self.commands.is_at_prompt:
            is_new = not wait.is_after or self.commands.prompts > baseline.prompts
            return self._matched(wait, number) if is_new else None
        if condition.kind == "still" and condition.ms is not None:
            is_still = now >= max(self._last_output, wait.began) + condition.ms / 1000
            return self._matched(wait, number) if is_still else None
        return None

    def _matched(
        self, wait: PendingWait, number: int, place: MatchPlace | None = None, above: int = 0
    ) -> WaitForResult:
        kind = wait.params.conditions[number].kind
        result = WaitForResult(self.version, number, kind)
        if place is not None:
            result.text = place.text
            if place.row >= above:
                result.row, result.column = place.row - above, place.column
        return result


def _span(span: CellSpan) -> ScreenSpan:
    style = span.style
    return ScreenSpan(
        span.text,
        span.columns,
        _color(style.foreground),
        _color(style.background),
        _color(style.underline_color),
        style.bold,
        style.faint,
        style.italic,
        style.underline,
        style.blink,
        style.inverse,
        style.invisible,
        style.strikethrough,
        style.overline,
        style.link,
    )


def _color(color: Color) -> ScreenColor | None:
    return "#{:02x}{:02x}{:02x}".format(*color) if isinstance(color, tuple) else color
