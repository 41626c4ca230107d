"""The colours of pictures of a screen."""

from __future__ import annotations

from exec_server.terminal.cells import Color, Style

Rgb = tuple[int, int, int]

FOREGROUND: Rgb = (0xD8, 0xD8, 0xD8)
BACKGROUND: Rgb = (0x10, 0x10, 0x10)
# The sixteen named colours, as xterm has them, with a blue that can be read on black.
_NAMED: tuple[Rgb, ...] = (
    (0x00, 0x00, 0x00),
    (0xCD, 0x31, 0x31),
    (0x0D, 0xBC, 0x79),
    (0xE5, 0xE5, 0x10),
    (0x24, 0x72, 0xC8),
    (0xBC, 0x3F, 0xBC),
    (0x11, 0xA8, 0xCD),
    (0xE5, 0xE5, 0xE5),
    (0x66, 0x66, 0x66),
    (0xF1, 0x4C, 0x4C),
    (0x23, 0xD1, 0x8B),
    (0xF5, 0xF5, 0x43),
    (0x3B, 0x8E, 0xEA),
    (0xD6, 0x70, 0xD6),
    (0x29, 0xB8, 0xDB),
    (0xFF, 0xFF, 0xFF),
)
_STEPS = (0x00, 0x5F, 0x87, 0xAF, 0xD7, 0xFF)


def rgb(color: Color, default: Rgb) -> Rgb:
    """Red, green and blue of *color*."""
    if color is None:
        return default
    if isinstance(color, tuple):
        return color
    if color < 16:
        return _NAMED[color]
    if color < 232:
        cube = color - 16
        return (_STEPS[cube // 36], _STEPS[cube // 6 % 6], _STEPS[cube % 6])
    grey = 8 + 10 * (color - 232)
    return (grey, grey, grey)


def ink_and_paper(style: Style) -> tuple[Rgb, Rgb]:
    """The colours in which text of this *style* and its background are drawn."""
    foreground = style.foreground
    if style.bold and isinstance(foreground, int) and foreground < 8:
        foreground += 8
    ink, paper = rgb(foreground, FOREGROUND), rgb(style.background, BACKGROUND)
    if style.inverse:
        ink, paper = paper, ink
    if style.faint:
        ink = tuple((2 * one + other) // 3 for one, other in zip(ink, paper, strict=True))  # type: ignore[assignment]
    if style.invisible:
        ink = paper
    return ink, paper
