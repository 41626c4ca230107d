"""The conditions of waits: whether one holds, and where."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from exec_server.errors import InvalidParams
from exec_server.protocol.screen import WaitCondition, WaitForParams

# A pattern that needs more processor time for one screen is refused. Python checks for signals
# while it searches.
REGEX_SECONDS = 0.05
# One that takes this long on the average is refused after so much time in all, because it would
# hold up the models of others.
REGEX_MEAN_SECONDS, REGEX_TOTAL_SECONDS = 0.001, 0.5


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


def found(
    condition: WaitCondition, pattern: re.Pattern[str] | None, text: str
) -> Iterator[MatchPlace]:
    """Each place at which a condition about text holds in *text*, whose rows are lines."""
    if condition.kind == "regex":
        assert pattern is not None
        with limited():
            matches = [(m.start(), m.group()) for m in pattern.finditer(text) if m.group()]
    else:
        wanted = condition.text or ""
        matches = [(at, wanted) for at in _all(text, wanted)]
    for start, matched in matches:
        row = text.count("\n", 0, start)
        yield MatchPlace(row, start - (text.rfind("\n", 0, start) + 1), matched)


def _all(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + 1)


class _TooLong(Exception):
    pass


@contextmanager
def limited() -> Iterator[None]:
    """Raise InvalidParams if the block takes too long; only the main thread may use it."""

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
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
        signal.signal(signal.SIGVTALRM, before)


def compiled(pattern: str) -> re.Pattern[str]:
    try:
        with limited():
            return re.compile(pattern, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as exc:
        raise InvalidParams(f"the pattern is wrong: {exc}") from None
