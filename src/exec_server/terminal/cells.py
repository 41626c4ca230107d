"""What a screen consists of: rows, spans of cells with one style, and the cursor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

# None is the default colour, a number is one of the 256 of the palette, three are red, green, blue.
Color = None | int | tuple[int, int, int]
CursorShape = Literal["block", "underline", "bar"]
# What a cell belongs to, as OSC 133 says: what a command printed, what was typed, or the prompt.
Zone = Literal["output", "input", "prompt"]


@dataclass(frozen=True, slots=True)
class Style:
    """How cells look."""

    foreground: Color = None
    background: Color = None
    underline_color: Color = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    # 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
    underline: int = 0
    blink: bool = False
    inverse: bool = False
    invisible: bool = False
    strikethrough: bool = False
    overline: bool = False
    # The target of a hyperlink (OSC 8).
    link: str | None = None


PLAIN = Style()

# Engines are no larger than this: the memory for more may be missing, and libghostty ends its
# process then. Reading so many cells takes about a second.
MAX_COLUMNS, MAX_ROWS, MAX_CELLS = 4096, 4096, 1 << 18


def bounded_size(columns: int, rows: int) -> tuple[int, int]:
    """The size of an engine for a terminal of any size: columns and rows."""
    columns = min(max(columns, 1), MAX_COLUMNS)
    return columns, min(max(rows, 1), MAX_ROWS, MAX_CELLS // columns)


class CellSpan(NamedTuple):
    """Neighbouring cells of one style and zone."""

    text: str
    # How many columns it covers; a wide character covers two.
    columns: int
    style: Style = PLAIN
    # True for cells in which nothing was ever written since they were erased; the text is blanks.
    is_erased: bool = False
    zone: Zone = "output"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a screen; erased cells without a colour at its end are left out."""

    spans: tuple[CellSpan, ...] = ()
    # True if the text goes on in the next row, because the line was too long.
    is_wrapped: bool = False

    @property
    def whole_text(self) -> str:
        return "".join([span.text for span in self.spans])

    @property
    def text(self) -> str:
        return self.whole_text.rstrip(" ")

    @property
    def output(self) -> str:
        """The text without what was typed at a prompt, where the shell marks it (OSC 133)."""
        return "".join(
            " " * span.columns if span.zone == "input" else span.text for span in self.spans
        ).rstrip(" ")


@dataclass(frozen=True, slots=True)
class ScreenCursor:
    """Where the next character goes; counted from 0."""

    row: int = 0
    column: int = 0
    is_visible: bool = True
    shape: CursorShape = "block"
    is_blinking: bool = False
    # True if the last column was written, and the next character goes to the next row.
    is_wrap_pending: bool = False


@dataclass(frozen=True, slots=True)
class ScreenPage:
    """One of the two screens, with everything that a dump needs to paint it again."""

    rows: list[Row]
    cursor: ScreenCursor
    # The sequences that restore the pen, the character sets and the kitty keyboard flags.
    pen: bytes = b""
    # The cursor that DECSC saved and its pen; None if that is not known.
    saved: tuple[ScreenCursor, bytes] | None = None
    # The character in the last column, while the cursor waits behind it.
    edge: CellSpan | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole state of a terminal that a dump restores."""

    columns: int
    # What is above the primary screen, oldest first, as bytes that print it.
    history: bytes
    primary: ScreenPage
    # The alternate screen while it is shown, and the mode that showed it: 47, 1047 or 1049.
    alternate: ScreenPage | None = None
    alternate_mode: int = 1049
    title: str = ""
    # Modes that differ from their defaults: (number, is it an ANSI mode, is it set).
    modes: list[tuple[int, bool, bool]] = field(default_factory=list)
    # The sequences for tab stops and colours of the palette; and for the scrolling region.
    settings: bytes = b""
    margins: bytes = b""
    top_margin: int = 0
    left_margin: int = 0
    # The bytes of a sequence that has begun and not ended.
    unfinished: bytes = b""
