"""The conditions of waits: whether one holds, and where."""

from __future__ import annotations

import gc
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from exec_server.errors import InvalidParams
from exec_server.protocol.screen import WaitCondition, WaitForParams

# A search that needs more processor time for one screen is refused. Python checks for signals while
# it searches.
REGEX_SECONDS = 0.05
# A pattern that takes this long on the average is refused after so much time in all, because it
# would hold up the models of others.
REGEX_MEAN_SECONDS, REGEX_TOTAL_SECONDS = 0.001, 0.5
# All waits of one terminal may take the first time after each output. What they take beyond it may
# add up to the second, which comes back slowly: so much in a second.
ROUND_SECONDS, EXCESS_SECONDS, REGAINED = 0.005, 1.0, 0.05
TOO_MUCH = "the waits for this terminal take too long together; make them simpler"


@dataclass(slots=True)
class Baseline:
    """What a terminal showed at a version."""

    version: int
    # The top row of the screen then.
    top: Any
    is_alternate: bool
    lines: list[str]
    prompts: int


@dataclass(frozen=True, slots=True)
class MatchPlace:
    """Where a text was found: a row of the baseline's screen, counted on, and a column."""

    row: int
    column: int
    text: str


class PendingWait:
    """One `process/waitFor`."""

    def __init__(self, call: int, params: WaitForParams, *, now: float) -> None:
        self.call = call
        self.params = params
        self.deadline = None if params.timeout_ms is None else now + params.timeout_ms / 1000
        self.began = now
        # How long its patterns took, and how often.
        self._seconds = 0.0
        self._searches = 0
        self.baseline: Baseline | None = None
        # True if what the baseline shows does not count.
        self.is_after = params.after is not None
        self.patterns = [
            compiled(condition.pattern) if condition.pattern is not None else None
            for condition in params.conditions
        ]

    def spent(self, seconds: float) -> None:
        """Count the time that its patterns have taken. Raises InvalidParams if it is too much."""
        self._seconds += seconds
        self._searches += 1
        is_slow = self._seconds / self._searches > REGEX_MEAN_SECONDS
        if is_slow and self._seconds > REGEX_TOTAL_SECONDS:
            raise InvalidParams("the pattern takes too long, again and again; make it simpler")

    @property
    def reads_text(self) -> bool:
        """True if a condition is about text, so that no output may be skipped."""
        return any(c.kind in ("text", "regex", "gone") for c in self.params.conditions)

    def still_at(self, last_output: float) -> float | None:
        """When a condition "still" holds, if nothing is printed until then."""
        quiet = [c.ms / 1000 for c in self.params.conditions if c.kind == "still" and c.ms]
        return max(last_output, self.began) + min(quiet) if quiet else None


class SearchBudget:
    """How long the waits of one terminal may keep the models of all others from going on."""

    def __init__(self, now: float) -> None:
        self._left = EXCESS_SECONDS
        self._at = now
        self._began = 0.0

    def begin(self, now: float) -> None:
        """The waits are looked at."""
        regained = REGAINED * max(0.0, now - self._at)
        self._left, self._at = min(EXCESS_SECONDS, self._left + regained), now
        self._began = time.thread_time()

    def check(self) -> None:
        """Raise InvalidParams if it is used up."""
        if self._excess > self._left:
            raise InvalidParams(TOO_MUCH)

    def end(self) -> None:
        """All waits were looked at."""
        self._left -= self._excess

    @property
    def _excess(self) -> float:
        return max(0.0, time.thread_time() - self._began - ROUND_SECONDS)


def found(condition: WaitCondition, pattern: re.Pattern[str] | None, text: str) -> list[MatchPlace]:
    """Each place at which a condition about text holds in *text*, whose rows are lines.

    Raises InvalidParams if it takes too long, for example because there are very many.
    """
    with limited():
        return list(_placed(text, _matches(condition, pattern, text)))


def _matches(
    condition: WaitCondition, pattern: re.Pattern[str] | None, text: str
) -> Iterator[tuple[int, str]]:
    if condition.kind == "regex":
        assert pattern is not None
        yield from ((m.start(), m.group()) for m in pattern.finditer(text) if m.group())
        return
    wanted = condition.text or ""
    at = text.find(wanted)
    while at >= 0:
        yield at, wanted
        at = text.find(wanted, at + 1)


def _placed(text: str, matches: Iterator[tuple[int, str]]) -> Iterator[MatchPlace]:
    # Each row is counted once: there may be a match in every cell.
    row = row_start = 0
    for start, matched in matches:
        row += text.count("\n", row_start, start)
        row_start = max(row_start, text.rfind("\n", row_start, start) + 1)
        yield MatchPlace(row, start - row_start, matched)


class _TooLong(Exception):
    pass


@contextmanager
def limited() -> Iterator[None]:
    """Raise InvalidParams if the block takes too long; only the main thread may use it."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    # What is raised while garbage is collected is lost.
    collects = gc.isenabled()
    gc.disable()
    signal.setitimer(signal.ITIMER_VIRTUAL, REGEX_SECONDS)
    try:
        try:
            yield
        finally:
            # The signal may still come here.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        raise InvalidParams("the pattern takes too long; make it simpler") from None
    finally:
        if collects:
            gc.enable()
        signal.signal(signal.SIGVTALRM, before)


def compiled(pattern: str) -> re.Pattern[str]:
    try:
        with limited():
            return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as exc:
        raise InvalidParams(f"the pattern is wrong: {exc}") from None
