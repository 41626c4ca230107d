"""A picture of a screen as PNG, drawn with Pillow (extra `png`) and a font of this package.

The font is part of the package, so that a screen has the same pixels on every machine with the same
release of Pillow. It has no CJK characters; they are drawn as boxes of their width.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exec_server.terminal.cells import CellSpan, Row, ScreenCursor
from exec_server.terminal.picture_colors import BACKGROUND, FOREGROUND, ink_and_paper

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

_FONT = Path(__file__).parent / "fonts" / "DejaVuSansMono.ttf"
_WIDTH, _HEIGHT, _SIZE, _MARGIN = 9, 18, 15, 8


def png_picture(rows: Sequence[Row], columns: int, *, cursor: ScreenCursor | None = None) -> bytes:
    """The screen as a PNG file; the cursor is drawn if it is given and visible.

    Raises ImportError without Pillow.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise ImportError(
            "PNG pictures need Pillow: pip install 'exec-server[png]', or take an .svg"
        ) from None

    size = (columns * _WIDTH + 2 * _MARGIN, len(rows) * _HEIGHT + 2 * _MARGIN)
    image = Image.new("RGB", size, BACKGROUND)
    draw = ImageDraw.Draw(image)
    for number, row in enumerate(rows):
        column = 0
        for span in row.spans:
            _draw_span(draw, span, _MARGIN + column * _WIDTH, _MARGIN + number * _HEIGHT)
            column += span.columns
    if cursor is not None and cursor.is_visible:
        _draw_cursor(draw, cursor)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=6)
    return file.getvalue()


@lru_cache(maxsize=1)
def _font() -> FreeTypeFont:
    from PIL import ImageFont

    # The basic layout, because the other one depends on libraries of the machine.
    return ImageFont.truetype(str(_FONT), _SIZE, layout_engine=ImageFont.Layout.BASIC)


def _draw_span(draw: Any, span: CellSpan, left: int, top: int) -> None:
    ink, paper = ink_and_paper(span.style)
    right = left + span.columns * _WIDTH - 1
    if paper != BACKGROUND:
        draw.rectangle((left, top, right, top + _HEIGHT - 1), fill=paper)
    if span.is_erased:
        return
    _draw_text(draw, span, left, top, ink)
    style = span.style
    for is_drawn, height in (
        (style.underline, _HEIGHT - 2),
        (style.strikethrough, _HEIGHT // 2),
        (style.overline, 0),
    ):
        if is_drawn:
            draw.line((left, top + height, right, top + height), fill=ink)


def _draw_text(draw: Any, span: CellSpan, left: int, top: int, ink: Any) -> None:
    if span.text.isascii():
        _draw_word(draw, span.text, left, top, ink, is_bold=span.style.bold)
        return
    spare = span.columns - len(span.text)
    for character in span.text:
        is_wide = spare > 0 and _is_wide(character)
        _draw_word(draw, character, left, top, ink, is_bold=span.style.bold)
        spare -= is_wide
        left += _WIDTH * (2 if is_wide else 1)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def _draw_word(draw: Any, text: str, left: int, top: int, ink: Any, *, is_bold: bool) -> None:
    if text.strip(" "):
        draw.text((left, top), text, fill=ink, font=_font())
        if is_bold:
            draw.text((left + 1, top), text, fill=ink, font=_font())


def _draw_cursor(draw: Any, cursor: ScreenCursor) -> None:
    left, top = _MARGIN + cursor.column * _WIDTH, _MARGIN + cursor.row * _HEIGHT
    right, bottom = left + _WIDTH - 1, top + _HEIGHT - 1
    if cursor.shape == "bar":
        right = left + 1
    elif cursor.shape == "underline":
        top = bottom - 1
    is_block = cursor.shape == "block"
    draw.rectangle(
        (left, top, right, bottom), outline=FOREGROUND, fill=None if is_block else FOREGROUND
    )
