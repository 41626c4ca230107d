"""A terminal's state as bytes that paint it again on any terminal, without a query among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exec_server.terminal.cells import PLAIN, Color, Picture, Row, ScreenCursor, ScreenPage, Style

_SHAPES = {"block": 2, "underline": 4, "bar": 6}
# Whatever the terminal was: no margins, plain pen, ASCII, the primary screen, empty, all tab stops.
_CLEAN = (
    b"\x1b[!p\x1b[?69l\x1b[r\x1b[0m\x1b(B\x1b)B\x0f"
    b"\x1b[?1049l\x1b[?6l\x1b[4l\x1b[?7h\x1b[H\x1b[2J\x1b[3J"
)
_ATTRIBUTES = (
    ("bold", b"1"),
    ("faint", b"2"),
    ("italic", b"3"),
    ("blink", b"5"),
    ("inverse", b"7"),
    ("invisible", b"8"),
    ("strikethrough", b"9"),
    ("overline", b"53"),
)
_KEYPAD_MODE = 66
_ORIGIN_MODE = (6, False, True)
# A terminal that is told to set one of these may answer at once, or holds back what it shows.
_SILENT = {2026, 2031, 2048}
# The alternate screen and the saved cursor are painted on their own; 3 would clear the screen.
_PAINTED = {3, 47, 1047, 1048, 1049}


def dump(picture: Picture, *, joins_rows: bool = True) -> bytes:
    """The bytes that paint *picture*, without a query; they end inside a sequence if it did.

    If *joins_rows* is true, a row that goes on in the next one is left by a wrap, so that the
    terminal knows it as one line. A terminal with more columns would not wrap there.
    """
    parts = [_CLEAN, picture.history]
    parts += _page(picture.primary, picture.columns, joins_rows=joins_rows)
    if picture.alternate is not None:
        if picture.primary.saved is not None and picture.alternate_mode != 1049:
            parts += _saved(picture.primary)
        # The cursor is saved by this, and the alternate screen is empty then.
        parts += [_cursor(picture.primary.cursor), picture.primary.pen]
        parts.append(b"\x1b[?%dh\x1b[0m\x1b[H\x1b[2J" % picture.alternate_mode)
        parts += _page(picture.alternate, picture.columns, joins_rows=joins_rows)
    page = picture.alternate or picture.primary
    parts += _saved(page)
    parts += [picture.settings, _title(picture.title), *_modes(picture), picture.margins]
    parts += _place(picture, page)
    parts += [_shape(page.cursor), picture.unfinished]
    return b"".join(parts)


def _page(page: ScreenPage, columns: int, *, joins_rows: bool) -> Iterator[bytes]:
    is_continued = False
    for number, row in enumerate(page.rows):
        if row.spans:
            if not is_continued:
                yield b"\x1b[%d;1H" % (number + 1)
            elif row.spans[0].is_erased:
                # A movement of the cursor would not wrap; a blank does, and is erased again.
                yield b"\x1b[0m \r\x1b[X"
            yield from _row(row, columns)
        is_continued = joins_rows and row.is_wrapped and bool(row.spans)
    yield b"\x1b[0m"


def _row(row: Row, columns: int) -> Iterator[bytes]:
    style = PLAIN
    column = 0
    yield b"\x1b[0m"
    for span in row.spans:
        if span.style != style:
            yield sgr(span.style)
            if span.style.link != style.link:
                yield link(span.style.link)
            style = span.style
        column += span.columns
        if not span.is_erased or row.is_wrapped:
            yield span.text.encode("utf-8", "replace")
        elif column >= columns:
            yield b"\x1b[K"
        elif span.style == PLAIN:
            yield b"\x1b[%dC" % span.columns
        else:
            yield b"\x1b[%dX\x1b[%dC" % (span.columns, span.columns)
    if style.link is not None:
        yield link(None)


def scrolled(above: Sequence[Row], columns: int, rows: int) -> bytes:
    """Bytes that print *above* and push all of it off a screen of so many *rows*."""
    if not above:
        return b""
    parts: list[bytes] = []
    for row in above:
        parts += _row(row, columns)
        if not row.is_wrapped:
            parts.append(b"\x1b[0m\r\n")
    return b"".join([*parts, b"\x1b[0m", b"\r\n" * rows])


def _saved(page: ScreenPage) -> list[bytes]:
    if page.saved is None:
        return []
    cursor, pen = page.saved
    return [_cursor(cursor), pen, b"\x1b7\x1b[0m\x1b(B\x1b)B\x0f"]


def _modes(picture: Picture) -> Iterator[bytes]:
    for number, is_ansi, is_set in picture.modes:
        if number == _KEYPAD_MODE and not is_ansi:
            # More terminals know DECKPAM than the mode; tmux is one that does not.
            yield b"\x1b=" if is_set else b"\x1b>"
        elif number not in _SILENT | _PAINTED or is_ansi:
            kind = b"" if is_ansi else b"?"
            yield b"\x1b[%s%d%s" % (kind, number, b"h" if is_set else b"l")


def _place(picture: Picture, page: ScreenPage) -> list[bytes]:
    """The cursor's place and the pen; with origin mode a place is counted from the margins."""
    cursor = page.cursor
    row, column = cursor.row, cursor.column
    if _ORIGIN_MODE in picture.modes:
        row, column = max(row - picture.top_margin, 0), max(column - picture.left_margin, 0)
    parts = [b"\x1b[%d;%dH" % (row + 1, column + 1)]
    if page.edge is not None:
        # Written once more, the last column leaves the cursor waiting behind it.
        if page.edge.columns == 2:
            parts.append(b"\x1b[D")
        parts += [sgr(page.edge.style), page.edge.text.encode("utf-8", "replace")]
    return [*parts, b"\x1b[0m", page.pen]


def _cursor(cursor: ScreenCursor) -> bytes:
    return b"\x1b[%d;%dH" % (cursor.row + 1, cursor.column + 1)


def _shape(cursor: ScreenCursor) -> bytes:
    if cursor.shape == "block" and not cursor.is_blinking:
        return b"\x1b[0 q"
    return b"\x1b[%d q" % (_SHAPES[cursor.shape] - cursor.is_blinking)


def _title(title: str) -> bytes:
    clean = "".join(character for character in title if character.isprintable())
    return b"\x1b]2;%s\x1b\\" % clean.encode("utf-8", "replace")


def sgr(style: Style) -> bytes:
    """The sequence that makes the pen look like *style*, whatever it was."""
    codes = [b"0"]
    codes += [code for name, code in _ATTRIBUTES if getattr(style, name)]
    if style.underline:
        codes.append(b"4" if style.underline == 1 else b"4:%d" % style.underline)
    codes += _color(style.foreground, 30)
    codes += _color(style.background, 40)
    codes += _color(style.underline_color, 50)
    return b"\x1b[%sm" % b";".join(codes)


def _color(color: Color, base: int) -> list[bytes]:
    if color is None:
        return []
    if isinstance(color, tuple):
        red, green, blue = color
        # With a colon a terminal that does not know it skips one parameter, not four.
        if base == 50:
            return [b"58:2::%d:%d:%d" % (red, green, blue)]
        return [b"%d;2;%d;%d;%d" % (base + 8, red, green, blue)]
    if base == 50:
        return [b"58:5:%d" % color]
    if color < 8:
        return [b"%d" % (base + color)]
    return [b"%d;5;%d" % (base + 8, color)]


def link(target: str | None) -> bytes:
    """Begin a hyperlink, or end it."""
    clean = "".join(c for c in target or "" if c.isprintable() and c != " ")
    return b"\x1b]8;;%s\x1b\\" % clean.encode("utf-8", "replace")
