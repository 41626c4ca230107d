"""The engine on bittty, which is pure Python, for machines without a wheel of pyghostty."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from bittty import Board, MemoryConnection
from bittty.present import RowsScrolledOff, ScrollbackCleared

from exec_server.terminal.answers import safe_answers
from exec_server.terminal.cells import (
    PLAIN,
    CellSpan,
    Color,
    Picture,
    Row,
    ScreenCursor,
    ScreenPage,
    Style,
    bounded_size,
)
from exec_server.terminal.dump import dump, scrolled, sgr
from exec_server.terminal.key_names import KeyModes, encode_keys
from exec_server.terminal.restored_modes import ALTERNATE_MODES, RESTORED_MODES

_UNDERLINES = {None: 1, "double": 2, "curly": 3, "dotted": 4, "dashed": 5}
_UNFINISHED_MAX_CHARACTERS = 64 * 1024
_NO_TITLE = "Terminal"


class BitttyEngine:
    """One terminal; see `TerminalEngine`."""

    name = "bittty"
    # It does not tell whether it is inside a sequence, nor which part of the screen scrolls.
    is_between_sequences = False
    forgets_after = None

    @property
    def rows_kept(self) -> int:
        return self._above.maxlen or 0

    # It does not remember which cells were typed.
    has_zones = False
    # Rows that leave the screen are told; `Board` asks for this.
    keeps_scrollback = True

    def __init__(self, columns: int, rows: int, *, scrollback: int = 2000) -> None:
        self.on_answer: Callable[[bytes], None] | None = None
        columns, rows = bounded_size(columns, rows)
        self._board = Board(width=columns, height=rows)
        self._cable = MemoryConnection()
        self._board.host.attach(self._cable)
        self._board.attach_display(self)
        # There is no printer, and the screen is never sent back as if it had been typed.
        self._board.registry.update(dict.fromkeys(self._board.printer.handlers, _ignore))
        self._above: deque[Row] = deque(maxlen=scrollback)
        # How many rows have left the screen at its top.
        self._scrolled_off = 0
        self._decoder = _Utf8()

    # Input.

    def feed(self, data: bytes) -> None:
        self._board.parser.feed(self._decoder.whole(data).decode("utf-8", "replace"))
        if self._cable.data:
            answers = safe_answers(b"".join(_bytes(part) for part in self._cable.data))
            self._cable.data.clear()
            if answers and self.on_answer is not None:
                self.on_answer(answers)

    def resize(self, columns: int, rows: int) -> None:
        self._board.resize(*bounded_size(columns, rows))

    def close(self) -> None:
        self._board.detach_display()

    def present(self, event: object) -> None:
        """Something happened beside the screen; `Board` calls this."""
        if isinstance(event, RowsScrolledOff):
            self._scrolled_off += len(event.lines)
            self._above.extend(_row(line.cells, line.wrapped) for line in event.lines)
        elif isinstance(event, ScrollbackCleared):
            self._above.clear()

    # What it shows.

    @property
    def columns(self) -> int:
        return int(self._board.width)

    @property
    def rows(self) -> int:
        return int(self._board.height)

    @property
    def is_alternate(self) -> bool:
        return bool(self._board.blitter.in_alt_screen)

    @property
    def title(self) -> str:
        title = str(self._board.title.title)
        return "" if title == _NO_TITLE else title

    @property
    def working_directory(self) -> str:
        return ""

    @property
    def cursor(self) -> ScreenCursor:
        cursor = self._board.cursor
        return ScreenCursor(
            min(cursor.y, self.rows - 1),
            cursor.display_x,
            is_visible=self.mode(25),
            shape=cursor.shape,
            # It takes the default shape for a blinking one.
            is_blinking=self.mode(12) and cursor.shape != "block",
            is_wrap_pending=cursor.wrap_pending,
        )

    def mode(self, number: int, *, is_ansi: bool = False) -> bool:
        return bool(self._board.modes.mode_status(not is_ansi, number) in (1, 3))

    def lines(self) -> list[str]:
        return [row.text for row in self.cells()]

    def text_rows(self) -> list[tuple[str, bool]]:
        return [
            (row.whole_text if row.is_wrapped else row.text, row.is_wrapped) for row in self.cells()
        ]

    def cells(self) -> list[Row]:
        blitter = self._board.blitter
        return _rows(blitter.alt_page if self.is_alternate else blitter.primary_page)

    def history(self, count: int) -> list[str]:
        return [row.text for row in tuple(self._above)[-count:]] if count else []

    def output_lines(self) -> list[str]:
        return self.lines()

    def mark(self, row: int) -> Any:
        return self.is_alternate, self._scrolled_off + row

    def row_of(self, mark: Any) -> int | None:
        is_alternate, number = mark
        row = int(number) - self._scrolled_off
        return row if is_alternate == self.is_alternate and row >= -len(self._above) else None

    def forget(self, mark: Any) -> None:
        """Nothing is kept for it."""

    @property
    def key_modes(self) -> KeyModes:
        return KeyModes(
            is_cursor_application=self.mode(1),
            is_backarrow=self.mode(67),
            kitty_flags=int(self._board.keyboard._kitty[self.is_alternate].flags),
        )

    def encode_keys(self, *keys: str) -> bytes:
        return encode_keys(keys, self.key_modes)

    # The dump.

    def dump(self, *, history: int = 0, joins_rows: bool = True) -> bytes:
        blitter = self._board.blitter
        modes = [
            (number, is_ansi, self.mode(number, is_ansi=is_ansi))
            for number, is_ansi, default in RESTORED_MODES
            if self.mode(number, is_ansi=is_ansi) != default
        ]
        page = self._page(self.cells())
        margins = b""
        if (blitter.scroll_top, blitter.scroll_bottom) != (0, self.rows - 1):
            margins = b"\x1b[%d;%dr" % (blitter.scroll_top + 1, blitter.scroll_bottom + 1)
        picture = Picture(
            self.columns,
            scrolled(tuple(self._above)[-history:] if history else (), self.columns, self.rows),
            page if not self.is_alternate else self._hidden_page(),
            page if self.is_alternate else None,
            next((mode for mode in ALTERNATE_MODES if self.mode(mode)), 1049),
            self.title,
            modes,
            self._tab_stops(),
            margins,
            blitter.scroll_top,
            blitter.left_margin,
            self._unfinished(),
        )
        return dump(picture, joins_rows=joins_rows)

    def _page(self, rows: list[Row]) -> ScreenPage:
        board = self._board
        cursor = self.cursor
        saved = board.cursor.saved[self.is_alternate]
        edge = None
        if cursor.is_wrap_pending:
            style, text = board.blitter.current_page.get_cell(cursor.column, cursor.row)
            columns = 1
            if not text and cursor.column:
                style, text = board.blitter.current_page.get_cell(cursor.column - 1, cursor.row)
                columns = 2
            edge = CellSpan(str(text), columns, _style(style))
        flags = board.keyboard._kitty[self.is_alternate].flags
        kitty = b"\x1b[=%d;1u" % flags if flags else b""
        return ScreenPage(
            rows,
            cursor,
            sgr(_style(board.style.current)) + _charsets(board.charset.save()) + kitty,
            (ScreenCursor(saved.y, saved.x), sgr(_style(saved.style)) + _charsets(saved.charsets)),
            edge,
        )

    def _hidden_page(self) -> ScreenPage:
        """The primary screen while the alternate one is shown."""
        saved = self._board.cursor.saved[False]
        pen = sgr(_style(saved.style)) + _charsets(saved.charsets)
        cursor = ScreenCursor(saved.y, min(saved.x, self.columns - 1))
        return ScreenPage(_rows(self._board.blitter.primary_page), cursor, pen, (cursor, pen))

    def _tab_stops(self) -> bytes:
        stops = {stop for stop in self._board.cursor.tab_stops if stop < self.columns}
        if stops == set(range(8, self.columns, 8)):
            return b""
        return b"\x1b[3g" + b"".join(b"\x1b[%dG\x1bH" % (stop + 1) for stop in sorted(stops))

    def _unfinished(self) -> bytes:
        parser = self._board.parser
        text = str(parser.buffer)[parser.pos if parser.mode is None else parser._seq_start :]
        if len(text) > _UNFINISHED_MAX_CHARACTERS:
            return b""
        return text.encode("utf-8", "replace") + self._decoder.rest


class _Utf8:
    """Holds back the bytes of a character that has not come completely."""

    def __init__(self) -> None:
        self.rest = b""

    def whole(self, data: bytes) -> bytes:
        data = self.rest + data
        cut = len(data)
        for back in range(1, min(4, len(data)) + 1):
            byte = data[-back]
            if byte >= 0xC0:
                length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                cut = len(data) - back if length > back else cut
                break
            if byte < 0x80:
                break
        self.rest = data[cut:]
        return data[:cut]


def _ignore(operation: object) -> None:
    """Do nothing."""


def _bytes(part: Any) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def _rows(page: Any) -> list[Row]:
    return [
        _row(cells, page.is_line_wrapped(number)) for number, cells in enumerate(page.get_content())
    ]


def _row(cells: Iterable[Any], is_wrapped: bool) -> Row:
    spans: list[CellSpan] = []
    columns, text, last = 0, "", PLAIN
    for drawn, character in cells:
        if not character:
            columns += 1
            continue
        style = _style(drawn)
        if style != last:
            if columns:
                spans.append(CellSpan(text, columns, last))
            columns, text, last = 0, "", style
        columns += 1
        text += str(character)
    if columns and last != PLAIN:
        spans.append(CellSpan(text, columns, last))
    elif stripped := text.rstrip(" "):
        spans.append(CellSpan(stripped, columns - (len(text) - len(stripped)), last))
    # It still says that a row is wrapped when its end has been erased.
    is_full = last != PLAIN or not text.endswith(" ")
    return Row(tuple(spans), bool(is_wrapped) and is_full)


def _style(style: Any) -> Style:
    return Style(
        _color(style.fg),
        _color(style.bg),
        _color(style.underline_color),
        bool(style.bold),
        bool(style.dim),
        bool(style.italic),
        _UNDERLINES.get(style.underline_style, 1) if style.underline else 0,
        bool(style.blink),
        bool(style.reverse),
        bool(style.conceal),
        bool(style.strike),
        bool(style.overline),
        style.hyperlink,
    )


def _color(color: Any) -> Color:
    if color is None or color.mode == "default":
        return None
    return int(color.value) if color.mode == "indexed" else tuple(color.value)


def _charsets(saved: Any) -> bytes:
    active, _right, names = saved
    designations = b"".join(
        b"\x1b" + mark + str(name).encode()
        for mark, name in zip((b"(", b")", b"*", b"+"), names, strict=False)
        if name != "B"
    )
    return designations + (b"\x0e" if active == 1 else b"")
