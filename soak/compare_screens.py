"""Compares our screens of recorded programs with those of tmux and xterm.js."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import exec_server
from exec_server.terminal import open_engine
from soak.other_terminals import ShownScreen, missing, opened
from soak.recorded_programs import COLUMNS, ROWS, Recording, programs, record

# What tmux prints for line drawing characters: `capture-pane` leaves the character set out.
_LETTERS = str.maketrans("┌┐└┘─│├┤┴┬┼◆▒°±␉␌␍␊␤␋⎺⎻⎼⎽≤≥π≠£·", "lkmjqxtuvwn`afgbcdehioprsyz{|}~")


def explained(data: bytes, other: str, mine: ShownScreen, theirs: ShownScreen) -> str | None:
    """Why another terminal shows something else; None if that is not known."""
    if other == "tmux" and _difference(_lettered(mine), _lettered(theirs)) is None:
        return "its capture-pane prints line drawing characters as letters"
    if b"\x1b[?69h" in data:
        return "it does not know left and right margins (DECLRMM)"
    return None


def _lettered(shown: ShownScreen) -> ShownScreen:
    return ShownScreen([line.translate(_LETTERS) for line in shown.lines], shown.cursor)


async def compare(limit: int | None) -> int:
    """The number of differences that have no explanation."""
    others = []
    for name in ("tmux", "xterm.js"):
        if (why := missing(name)) is None:
            others.append(name)
        else:
            print(f"not compared with {name}: {why}")
    with tempfile.TemporaryDirectory() as folder:
        chosen = programs(Path(folder))[:limit]
        async with exec_server.local() as client:
            recordings = [await record(client, program) for program in chosen]
        told: Counter[str] = Counter()
        unexplained = sum(
            _compare_one(recording, name, told) for recording in recordings for name in others
        )
    screens = sum(len(each.ends) for each in recordings)
    print(f"{len(recordings)} programs, {screens} screens, beside {' and '.join(others)}:")
    for reason, count in told.most_common():
        print(f"  {count:4} {reason}")
    return unexplained


def _compare_one(recording: Recording, name: str, told: Counter[str]) -> int:
    unexplained, done = 0, 0
    ours = open_engine(COLUMNS, ROWS)
    with (
        tempfile.TemporaryDirectory() as folder,
        opened(name, Path(folder), COLUMNS, ROWS) as other,
    ):
        for step, end in enumerate(recording.ends):
            ours.feed(recording.data[done:end])
            theirs = other.feed(recording.data[done:end])
            done = end
            cursor = ours.cursor
            # As `process/screen` has them. The engine's own text leaves out a mark on a blank.
            rows = [row.text for row in ours.cells()]
            mine = ShownScreen(rows, (cursor.row, cursor.column))
            difference = _difference(mine, theirs)
            if difference is None:
                told["equal"] += 1
                continue
            reason = explained(recording.data[:end], name, mine, theirs)
            told[f"{name}: {reason or 'NOT EXPLAINED'}"] += 1
            if reason is None:
                unexplained += 1
                print(f"{recording.program.name}, step {step}, {name}: {difference}")
    ours.close()
    return unexplained


def _difference(mine: ShownScreen, theirs: ShownScreen) -> str | None:
    for row in range(ROWS):
        left = mine.lines[row].rstrip()
        right = (theirs.lines[row] if row < len(theirs.lines) else "").rstrip()
        if left != right:
            return f"row {row}: {left!r} here, {right!r} there"
    # A cursor behind the last column is told as the last one or the one after it.
    row, column = theirs.cursor
    if (row, min(column, COLUMNS - 1)) != mine.cursor:
        return f"cursor {mine.cursor} here, {theirs.cursor} there"
    return None
