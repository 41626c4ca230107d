"""A picture of a screen as SVG, which needs no library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from exec_server.terminal.cells import CellSpan, Row, ScreenCursor
from exec_server.terminal.picture_colors import BACKGROUND, FOREGROUND, Rgb, ink_and_paper

_WIDTH, _HEIGHT, _SIZE, _MARGIN = 9, 18, 15, 8
_FONTS = "'DejaVu Sans Mono','Menlo','Consolas','Liberation Mono',monospace"
# What XML cannot hold, as a terminal shows it.
_UNPRINTABLE = {number: "�" for number in (*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF)}


def svg_picture(
    rows: Sequence[Row], columns: int, *, cursor: ScreenCursor | None = None, title: str = ""
) -> bytes:
    """The screen as an SVG document; the cursor is drawn if it is given and visible."""
    width, height = columns * _WIDTH + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{_FONTS}" font-size="{_SIZE}px" '
        'xml:space="preserve">\n',
        f"<title>{_text(title)}</title>\n" if title else "",
        f'<rect width="100%" height="100%" fill="{_hex(BACKGROUND)}"/>\n',
    ]
    for number, row in enumerate(rows):
        parts += _row(row, number)
    if cursor is not None and cursor.is_visible:
        parts.append(_cursor(cursor))
    parts.append("</svg>\n")
    return "".join(parts).encode()


def _row(row: Row, number: int) -> Iterator[str]:
    column = 0
    top = _MARGIN + number * _HEIGHT
    for span in row.spans:
        yield from _span(span, _MARGIN + column * _WIDTH, top)
        column += span.columns


def _span(span: CellSpan, left: int, top: int) -> Iterator[str]:
    ink, paper = ink_and_paper(span.style)
    width = span.columns * _WIDTH
    if paper != BACKGROUND:
        place = f'x="{left}" y="{top}" width="{width}" height="{_HEIGHT}"'
        yield f'<rect {place} fill="{_hex(paper)}"/>\n'
    if span.is_erased or (not span.text.strip(" ") and not span.style.underline):
        return
    words = f' fill="{_hex(ink)}"{_attributes(span)}'
    yield (
        f'<text x="{left}" y="{top + 14}" textLength="{width}" '
        f'lengthAdjust="spacingAndGlyphs"{words}>{_text(span.text)}</text>\n'
    )


def _attributes(span: CellSpan) -> str:
    style = span.style
    lines = [
        name
        for name, is_drawn in (
            ("underline", style.underline),
            ("line-through", style.strikethrough),
            ("overline", style.overline),
        )
        if is_drawn
    ]
    return (
        (' font-weight="bold"' if style.bold else "")
        + (' font-style="italic"' if style.italic else "")
        + (f' text-decoration="{" ".join(lines)}"' if lines else "")
    )


def _cursor(cursor: ScreenCursor) -> str:
    left, top = _MARGIN + cursor.column * _WIDTH, _MARGIN + cursor.row * _HEIGHT
    width, height = _WIDTH, _HEIGHT
    if cursor.shape == "bar":
        width = 2
    elif cursor.shape == "underline":
        top, height = top + _HEIGHT - 2, 2
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" '
        f'fill="{_hex(FOREGROUND)}" fill-opacity="0.6"/>\n'
    )


def _text(text: str) -> str:
    # Lone surrogates cannot be encoded.
    clean = text.translate(_UNPRINTABLE).encode("utf-8", "replace").decode()
    return escape(clean).replace(" ", "\u00a0")


def _hex(color: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)
