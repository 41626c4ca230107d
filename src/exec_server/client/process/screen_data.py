"""What a terminal shows, as a client has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import UNSET, UnsetType

from exec_server.protocol.screen import (
    ConditionKind,
    CursorPlace,
    KeyModesInForce,
    ScreenColor,
    ScreenResult,
    ScreenRow,
    ScreenSpan,
)
from exec_server.terminal.cells import CellSpan, Color, Row, ScreenCursor, Style
from exec_server.terminal.key_names import KeyModes


@dataclass(frozen=True, slots=True)
class Screen:
    """The screen of a terminal at one version."""

    # Grows with every change; `wait_for` takes it as *after*.
    version: int
    columns: int
    # The rows as text, without blanks at their ends.
    lines: list[str]
    # Where the next character goes, counted from 0.
    cursor: CursorPlace
    title: str = ""
    # True while the alternate screen is shown, as by an editor.
    alternate: bool = False
    # True if output was missed, so that the screen may be wrong.
    inexact: bool = False
    # How often the server had to make its model again.
    rebuilt: int = 0
    engine: str = ""
    # The rows as spans of one style each, if they were asked for.
    cells: list[list[ScreenSpan]] | None = None
    # The rows above the screen, oldest first, if they were asked for.
    history: list[str] | None = None
    key_modes: KeyModesInForce = KeyModesInForce()  # noqa: RUF009 (it is never changed)

    @property
    def rows(self) -> int:
        return len(self.lines)

    @property
    def text(self) -> str:
        """The rows as one text, without empty ones at its end."""
        return "\n".join(self.lines).rstrip("\n")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ScreenMatch:
    """Which condition ended a wait, and where."""

    kind: ConditionKind
    # The version of the screen at which it held.
    version: int
    # The text that was found.
    text: str | None = None
    # Its place on the screen, counted from 0; None if it has left the screen already.
    row: int | None = None
    column: int | None = None
    # With "exit": the exit status.
    exit_code: int | None = None


def screen_of(result: ScreenResult, before: Screen | None = None) -> Screen:
    """The screen of a full answer, or of one with changes since *before*."""
    if result.full or before is None:
        lines, cells = _all_rows(result)
        before = Screen(0, 0, [], result.cursor)
    else:
        lines, cells = _changed(before, result)
    return replace(
        before,
        version=result.version,
        lines=lines,
        cells=cells,
        cursor=result.cursor,
        alternate=result.alternate,
        inexact=result.inexact,
        rebuilt=result.rebuilt,
        columns=_known(result.columns, before.columns),
        title=_known(result.title, before.title),
        engine=_known(result.engine, before.engine),
        key_modes=_known(result.key_modes, before.key_modes),
        history=None if result.history is UNSET else result.history,
    )


T = TypeVar("T")


def _known(value: T | UnsetType, before: T) -> T:
    return before if isinstance(value, UnsetType) else value


def _all_rows(result: ScreenResult) -> tuple[list[str], list[list[ScreenSpan]] | None]:
    rows = result.lines
    return [row.text for row in rows], [_spans(row) for row in rows] if _is_styled(rows) else None


def _changed(
    before: Screen, result: ScreenResult
) -> tuple[list[str], list[list[ScreenSpan]] | None]:
    rows = _known(result.rows, len(before.lines))
    # All rows are told when their number has changed.
    lines = [*before.lines, *[""] * rows][:rows]
    cells = None if before.cells is None else [*before.cells, *([] for _ in range(rows))][:rows]
    for row in result.lines:
        lines[row.row] = row.text
        if cells is not None:
            cells[row.row] = _spans(row)
    return lines, cells


def _is_styled(rows: list[ScreenRow]) -> bool:
    return any(row.spans is not UNSET for row in rows)


def _spans(row: ScreenRow) -> list[ScreenSpan]:
    return [] if isinstance(row.spans, UnsetType) else row.spans


def drawn_rows(screen: Screen) -> list[Row]:
    """The rows as pictures are made of them."""
    return [Row(tuple(_cells(span) for span in spans)) for spans in screen.cells or []]


def drawn_cursor(screen: Screen) -> ScreenCursor:
    cursor = screen.cursor
    return ScreenCursor(cursor.row, cursor.column, cursor.visible, cursor.shape, cursor.blinking)


def key_modes_of(screen: Screen) -> KeyModes:
    modes = screen.key_modes
    return KeyModes(modes.cursor_application, modes.backarrow, modes.kitty_flags)


def _cells(span: ScreenSpan) -> CellSpan:
    style = Style(
        _color(span.foreground),
        _color(span.background),
        _color(span.underline_color),
        span.bold,
        span.faint,
        span.italic,
        span.underline,
        span.blink,
        span.inverse,
        span.invisible,
        span.strikethrough,
        span.overline,
        span.link,
    )
    return CellSpan(span.text, span.columns, style)


def _color(color: ScreenColor | None) -> Color:
    if isinstance(color, str):
        return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
    return color
