"""Terminals without a window: what a program's output looks like, as data, bytes or a picture.

engine.py          the TerminalEngine protocol, and the choice of one
ghostty_engine.py  the engine on libghostty-vt
bittty_engine.py   the engine in pure Python, where that has no wheel
cells.py           rows, spans, styles, the cursor
dump.py            both screens, modes and title as bytes that paint them again
restored_modes.py  which modes a dump restores
answers.py         which answers to queries may reach a program
key_names.py       names of keys, and the bytes for them
svg_picture.py     a picture of a screen as SVG
png_picture.py     the same as PNG, with Pillow
gif_picture.py     several of them as a moving GIF
picture_colors.py  the colours of pictures
"""

from exec_server.terminal.cells import CellSpan, Row, ScreenCursor, Style
from exec_server.terminal.engine import SCROLLBACK_ROWS, TerminalEngine, engine_name, open_engine

__all__ = [
    "SCROLLBACK_ROWS",
    "CellSpan",
    "Row",
    "ScreenCursor",
    "Style",
    "TerminalEngine",
    "engine_name",
    "open_engine",
]
