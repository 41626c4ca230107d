"""The engine on libghostty-vt, by way of pyghostty.

The module is long because everything that knows the C API is in it. That API may change with each
release, so the package is pinned, and the gate test compares dumps with the screens that they come
from at random cuts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyghostty import Terminal, ffi, lib
from pyghostty._ffi import union_fn
from pyghostty.core import init_sized

from exec_server.terminal.answers import safe_answers
from exec_server.terminal.cells import (
    PLAIN,
    CellSpan,
    Color,
    CursorShape,
    Picture,
    Row,
    ScreenCursor,
    ScreenPage,
    Style,
    Zone,
    bounded_size,
)
from exec_server.terminal.dump import dump
from exec_server.terminal.key_names import KeyModes, encode_keys
from exec_server.terminal.restored_modes import ALTERNATE_MODES, RESTORED_MODES

_CELL_KEYS = ("CODEPOINT", "CONTENT_TAG", "WIDE", "STYLE_ID", "HAS_HYPERLINK", "SEMANTIC_CONTENT")
_ZONES: tuple[Zone, ...] = ("output", "input", "prompt")
_SHAPES: tuple[CursorShape, ...] = ("bar", "block", "underline", "block")
# A sequence of more bytes than these cannot be continued after a dump, and is left out of it.
_UNFINISHED_MAX_BYTES = 64 * 1024
# How many kinds of cells are remembered before their table is emptied.
_MAX_CELL_KINDS = 20_000
_NARROW, _WIDE, _TAIL, _HEAD = range(4)
# A limit of lines makes the library six times as slow (0.1.3), so memory is limited instead. In the
# 2 MiB of 2,000 rows it keeps 2,291 to 2,866 rows of 80 columns, and in no width from 5 to 500 less
# or more cells than these.
_BYTES_OF_ROW, _NO_LIMIT = 1049, 10**9
_LEAST_CELLS_ABOVE, _MOST_CELLS_ABOVE = 130_000, 240_000
# Where the library puts a row and a flag of it; a thread that reads them holds the interpreter.
_row_out, _flag_out = ffi.new("GhosttyRow*"), ffi.new("bool*")


class GhosttyEngine:
    """One terminal; see `TerminalEngine`."""

    name = "ghostty"
    has_zones = True

    def __init__(self, columns: int, rows: int, *, scrollback: int = 2000) -> None:
        self.on_answer: Callable[[bytes], None] | None = None
        self._terminal = Terminal(*bounded_size(columns, rows), scrollback=_NO_LIMIT)
        self._keep: list[Any] = []
        self._configure()
        self._set("SCROLLBACK_MAX_BYTES", ffi.new("size_t*", scrollback * _BYTES_OF_ROW))
        # What cells are read from; it takes six times the memory of the terminal, and exists only
        # while they are read.
        self._state: Any = None
        self._rows: Any = None
        self._cells: Any = None

    # Input.

    def feed(self, data: bytes) -> None:
        self._terminal.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        self._terminal.resize(*bounded_size(columns, rows))

    def close(self) -> None:
        self._terminal.close()

    @property
    def is_between_sequences(self) -> bool:
        return bool(self._terminal.get("vt_ground", "bool"))

    @property
    def forgets_after(self) -> int | None:
        if self._extra("scrolling_region"):
            return None
        return self.rows + _MOST_CELLS_ABOVE // self.columns

    @property
    def rows_kept(self) -> int:
        return _LEAST_CELLS_ABOVE // self.columns

    # What it shows.

    @property
    def columns(self) -> int:
        return int(self._terminal.get("cols"))

    @property
    def rows(self) -> int:
        return int(self._terminal.get("rows"))

    @property
    def is_alternate(self) -> bool:
        return bool(self._terminal.get("active_screen", "GhosttyTerminalScreen"))

    @property
    def title(self) -> str:
        text = self._terminal.get("title", "GhosttyString")
        return bytes(ffi.buffer(text.ptr, text.len)).decode("utf-8", "replace") if text.len else ""

    @property
    def working_directory(self) -> str:
        """What OSC 7 said last."""
        text = self._terminal.get("pwd", "GhosttyString")
        return bytes(ffi.buffer(text.ptr, text.len)).decode("utf-8", "replace") if text.len else ""

    @property
    def cursor(self) -> ScreenCursor:
        state = init_sized("GhosttyRenderStateCursor")
        with self._rendered():
            lib.ghostty_render_state_get(
                self._state[0], lib.GHOSTTY_RENDER_STATE_DATA_CURSOR, state
            )
        column, row = self._terminal.cursor
        return ScreenCursor(
            row,
            column,
            is_visible=bool(self._terminal.get("cursor_visible", "bool")),
            shape=_SHAPES[state.visual_style],
            is_blinking=bool(state.blinking),
            is_wrap_pending=bool(self._terminal.get("cursor_pending_wrap", "bool")),
        )

    def mode(self, number: int, *, is_ansi: bool = False) -> bool:
        return bool(self._terminal.mode(number, ansi=is_ansi))

    def lines(self) -> list[str]:
        text: str = self._terminal.text()
        lines = [line.rstrip(" ") for line in text.split("\n")]
        return lines + [""] * (self.rows - len(lines))

    def text_rows(self) -> list[tuple[str, bool]]:
        lines = self.lines()
        return [
            (self._read_row(number).whole_text, True)
            if self._is_wrapped(self._rows[0])
            else (lines[number], False)
            for number in self._each_row()
        ]

    def output_lines(self) -> list[str]:
        lines = self.lines()
        for number in self._each_row():
            # Cells are read only in rows in which something was typed.
            if any(_kind_of(cell)[5] == "input" for cell in set(self._raw_cells())):
                lines[number] = self._read_row(number).output
        return lines

    def cells(self) -> list[Row]:
        return [self._read_row(number) for number in self._each_row()]

    def history(self, count: int) -> list[str]:
        count = min(count, int(self._terminal.get("scrollback_rows", "size_t")))
        text = self._history(count, lib.GHOSTTY_FORMATTER_FORMAT_PLAIN).decode()
        # Empty rows at the end are left out.
        lines = [line.rstrip(" ") for line in text.split("\n")] if count else []
        return lines[:count] + [""] * (count - len(lines))

    def mark(self, row: int) -> Any:
        kind = "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyTrackedGridRef*)"
        track = union_fn("ghostty_terminal_grid_ref_track", kind)
        point = ffi.new("GhosttyPointS*")
        point.tag, point.value.x, point.value.y = lib.GHOSTTY_POINT_TAG_ACTIVE, 0, row
        reference = ffi.new("GhosttyTrackedGridRef*")
        _check(track(self._terminal._t[0], point[0], reference), "mark a row")
        return reference

    def row_of(self, mark: Any) -> int | None:
        place = ffi.new("GhosttyPointCoordinate*")
        tag = lib.GHOSTTY_POINT_TAG_SCREEN
        if lib.ghostty_tracked_grid_ref_point(mark[0], tag, place):
            return None
        total = int(self._terminal.get("total_rows", "size_t"))
        return int(place.y) - (total - self.rows)

    def forget(self, mark: Any) -> None:
        lib.ghostty_tracked_grid_ref_free(mark[0])

    def dump(self, *, history: int = 0, joins_rows: bool = True) -> bytes:
        return dump(self._picture(history), joins_rows=joins_rows)

    @property
    def key_modes(self) -> KeyModes:
        return KeyModes(
            is_cursor_application=self.mode(1),
            is_backarrow=self.mode(67),
            kitty_flags=int(self._terminal.get("kitty_keyboard_flags", "uint8_t")),
        )

    def encode_keys(self, *keys: str) -> bytes:
        return encode_keys(keys, self.key_modes)

    # Reading cells.

    @contextmanager
    def _rendered(self) -> Iterator[None]:
        self._state = _handle("GhosttyRenderState", lib.ghostty_render_state_new)
        self._rows = _handle(
            "GhosttyRenderStateRowIterator", lib.ghostty_render_state_row_iterator_new
        )
        self._cells = _handle("GhosttyRenderStateRowCells", lib.ghostty_render_state_row_cells_new)
        try:
            _check(lib.ghostty_render_state_update(self._state[0], self._terminal._t[0]), "render")
            yield
        finally:
            lib.ghostty_render_state_row_cells_free(self._cells[0])
            lib.ghostty_render_state_row_iterator_free(self._rows[0])
            lib.ghostty_render_state_free(self._state[0])

    def _each_row(self) -> Iterator[int]:
        """The numbers of the rows, from the top; each can be read when its number is told."""
        with self._rendered():
            lib.ghostty_render_state_get(
                self._state[0], lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, self._rows
            )
            number = 0
            while lib.ghostty_render_state_row_iterator_next(self._rows[0]):
                yield number
                number += 1

    def _raw_cells(self) -> list[int]:
        view = ffi.new("GhosttyCellsView*")
        lib.ghostty_render_state_row_get(
            self._rows[0], lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, view
        )
        raw: list[int] = memoryview(ffi.buffer(view.ptr, view.len * 8)).cast("Q").tolist()
        return raw

    def _read_row(self, number: int) -> Row:
        iterator = self._rows[0]
        lib.ghostty_render_state_row_get(
            iterator, lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS, self._cells
        )
        return Row(self._spans(number, self._raw_cells()), self._is_wrapped(iterator))

    def _is_wrapped(self, iterator: Any) -> bool:
        lib.ghostty_render_state_row_get(iterator, lib.GHOSTTY_RENDER_STATE_ROW_DATA_RAW, _row_out)
        lib.ghostty_row_get(_row_out[0], lib.GHOSTTY_ROW_DATA_WRAP, _flag_out)
        return bool(_flag_out[0])

    def _spans(self, number: int, raw: list[int]) -> tuple[CellSpan, ...]:
        spans: list[CellSpan] = []
        styles: dict[int, Style] = {}
        columns, text, last = 0, "", (PLAIN, True, _ZONES[0])
        while raw and not raw[-1]:
            raw.pop()
        for column, cell in enumerate(raw):
            code, tag, wide, style_id, is_link, zone = _kind_of(cell)
            if wide in (_TAIL, _HEAD):
                columns += wide == _TAIL
                continue
            if tag >= 2:
                style = Style(background=_background(cell, tag))
            elif style_id == 0:
                style = PLAIN
            elif (known := styles.get(style_id)) is not None:
                style = known
            else:
                style = styles[style_id] = self._style(column)
            if is_link:
                style = self._linked(style, column, number)
            key = (style, not code, zone)
            if key != last:
                if columns:
                    spans.append(CellSpan(text, columns, *last))
                columns, text, last = 0, "", key
            columns += 1
            text += (self._grapheme(column) if tag == 1 else chr(code)) if code else " "
        if columns and last[:2] != (PLAIN, True):
            spans.append(CellSpan(text, columns, *last))
        return tuple(spans)

    def _style(self, column: int) -> Style:
        style = init_sized("GhosttyStyle")
        lib.ghostty_render_state_row_cells_select(self._cells[0], column)
        lib.ghostty_render_state_row_cells_get(
            self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_STYLE, style
        )
        return Style(
            _color(style.fg_color),
            _color(style.bg_color),
            _color(style.underline_color),
            bool(style.bold),
            bool(style.faint),
            bool(style.italic),
            int(style.underline),
            bool(style.blink),
            bool(style.inverse),
            bool(style.invisible),
            bool(style.strikethrough),
            bool(style.overline),
        )

    def _grapheme(self, column: int) -> str:
        length = ffi.new("uint32_t*")
        lib.ghostty_render_state_row_cells_select(self._cells[0], column)
        lib.ghostty_render_state_row_cells_get(
            self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_LEN, length
        )
        codes = ffi.new("uint32_t[]", max(length[0], 1))
        lib.ghostty_render_state_row_cells_get(
            self._cells[0], lib.GHOSTTY_RENDER_STATE_ROW_CELLS_DATA_GRAPHEMES_BUF, codes
        )
        return "".join(chr(code) for code in codes[0 : length[0]])

    def _linked(self, style: Style, column: int, row: int) -> Style:
        reference = self._terminal.ref(column, row)
        length = ffi.new("size_t*")
        lib.ghostty_grid_ref_hyperlink_uri(reference, ffi.NULL, 0, length)
        target = ffi.new("uint8_t[]", max(length[0], 1))
        lib.ghostty_grid_ref_hyperlink_uri(reference, target, len(target), length)
        uri = bytes(ffi.buffer(target, length[0])).decode("utf-8", "replace")
        return replace(style, link=uri)

    # The dump.

    def _picture(self, history: int) -> Picture:
        modes = [
            (number, is_ansi, self.mode(number, is_ansi=is_ansi))
            for number, is_ansi, default in RESTORED_MODES
            if self.mode(number, is_ansi=is_ansi) != default
        ]
        margins = self._extra("scrolling_region")
        alternate = None
        if self.is_alternate:
            alternate = self._page()
            with_primary = self._copy()
            mode = next((mode for mode in ALTERNATE_MODES if self.mode(mode)), 1049)
            with_primary.feed(b"\x1b[?%dl" % mode)
            primary = with_primary._page()
            above = with_primary._history(history, lib.GHOSTTY_FORMATTER_FORMAT_VT)
            with_primary.close()
        else:
            mode = 1049
            primary = self._page()
            above = self._history(history, lib.GHOSTTY_FORMATTER_FORMAT_VT)
        return Picture(
            self.columns,
            above + b"\x1b[0m" + b"\r\n" * self.rows if above else b"",
            primary,
            alternate,
            mode,
            self.title,
            modes,
            self._tab_stops() + self._palette() + self._extra("keyboard"),
            margins,
            *_first_of(margins),
            self._unfinished(),
        )

    def _page(self) -> ScreenPage:
        rows, cursor = self.cells(), self.cursor
        edge = self._edge(cursor) if cursor.is_wrap_pending else None
        restored = self._copy()
        restored.feed(b"\x18\x1b8")
        saved = (restored.cursor, restored._pen())
        restored.close()
        return ScreenPage(rows, cursor, self._pen() + self._kitty(), saved, edge)

    def _edge(self, cursor: ScreenCursor) -> CellSpan | None:
        """The character in the last column."""
        row = self.cells()[cursor.row]
        if not row.spans:
            return None
        last = row.spans[-1]
        raw = self._terminal.ref(cursor.column, cursor.row)
        cell = ffi.new("GhosttyCell*")
        lib.ghostty_grid_ref_cell(raw, cell)
        if _kind_of(cell[0])[2] == _TAIL:
            return CellSpan(last.text[-1:], 2, last.style)
        return CellSpan(last.text[-1:], 1, last.style)

    def _pen(self) -> bytes:
        return (
            self._extra("style", is_of_screen=True)
            + self._extra("hyperlink", is_of_screen=True)
            + self._extra("protection", is_of_screen=True)
            + self._extra("charsets", is_of_screen=True)
        )

    def _kitty(self) -> bytes:
        return self._extra("kitty_keyboard", is_of_screen=True)

    def _tab_stops(self) -> bytes:
        stops = self._extra("tabstops", is_before=True)
        usual = b"".join(b"\x1b[%dG\x1bH" % stop for stop in range(9, self.columns + 1, 8))
        return b"" if stops == b"\x1b[3g" + usual + b"\x1b[H" else stops

    def _palette(self) -> bytes:
        """The colours of the palette that a program has changed."""
        now = ffi.new("GhosttyColorRgb[256]")
        was = ffi.new("GhosttyColorRgb[256]")
        lib.ghostty_terminal_get(self._terminal._t[0], lib.GHOSTTY_TERMINAL_DATA_COLOR_PALETTE, now)
        lib.ghostty_terminal_get(
            self._terminal._t[0], lib.GHOSTTY_TERMINAL_DATA_COLOR_PALETTE_DEFAULT, was
        )
        if bytes(ffi.buffer(now)) == bytes(ffi.buffer(was)):
            return b""
        return b"".join(
            b"\x1b]4;%d;rgb:%02x/%02x/%02x\x1b\\" % (number, new.r, new.g, new.b)
            for number, (new, old) in enumerate(zip(now, was, strict=True))
            if (new.r, new.g, new.b) != (old.r, old.g, old.b)
        )

    def _extra(self, name: str, *, is_of_screen: bool = False, is_before: bool = False) -> bytes:
        """What the formatter says of *name*: what it prints more than without it."""
        options = self._first_cell_options(lib.GHOSTTY_FORMATTER_FORMAT_VT)
        plain = self._format(options)
        setattr(options.extra.screen if is_of_screen else options.extra, name, True)
        more = self._format(options)
        return more[: len(more) - len(plain)] if is_before else more[len(plain) :]

    def _first_cell_options(self, emit: int) -> Any:
        options = init_sized("GhosttyFormatterTerminalOptions")
        options.emit = emit
        selection = init_sized("GhosttySelection")
        selection.start = selection.end = self._terminal.ref(0, 0)[0]
        options.selection = selection
        self._keep = [selection]
        return options

    def _history(self, count: int, emit: int) -> bytes:
        """The newest *count* rows above the screen."""
        total = int(self._terminal.get("scrollback_rows", "size_t"))
        if not (count := min(count, total)):
            return b""
        options = self._first_cell_options(emit)
        selection = self._keep[0]
        selection.start = self._terminal.ref(0, total - count, "history")[0]
        selection.end = self._terminal.ref(self.columns - 1, total - 1, "history")[0]
        return self._format(options)

    def _format(self, options: Any) -> bytes:
        formatter = ffi.new("GhosttyFormatter*")
        result = lib.ghostty_formatter_terminal_new(
            ffi.NULL, formatter, self._terminal._t[0], options[0]
        )
        _check(result, "format")
        try:
            length = ffi.new("size_t*")
            lib.ghostty_formatter_format_buf(formatter[0], ffi.NULL, 0, length)
            text = ffi.new("uint8_t[]", max(length[0], 1))
            lib.ghostty_formatter_format_buf(formatter[0], text, len(text), length)
            return bytes(ffi.buffer(text, length[0]))
        finally:
            lib.ghostty_formatter_free(formatter[0])

    def _unfinished(self) -> bytes:
        length = ffi.new("size_t*")
        lib.ghostty_terminal_continuation_buf(self._terminal._t[0], ffi.NULL, 0, length)
        if not length[0]:
            return b""
        text = ffi.new("uint8_t[]", length[0])
        result = lib.ghostty_terminal_continuation_buf(
            self._terminal._t[0], text, len(text), length
        )
        return b"" if result else bytes(ffi.buffer(text, length[0]))

    def _copy(self) -> GhosttyEngine:
        """Another terminal in the same state, which answers no queries."""
        terminal = self._terminal._t[0]
        length = ffi.new("size_t*")
        lib.ghostty_snapshot_encode_buf(terminal, ffi.NULL, 0, length)
        snapshot = ffi.new("uint8_t[]", max(length[0], 1))
        _check(
            lib.ghostty_snapshot_encode_buf(terminal, snapshot, len(snapshot), length), "snapshot"
        )
        copy = GhosttyEngine(self.columns, self.rows)
        decoder = ffi.new("GhosttySnapshotDecoder*")
        _check(
            lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, snapshot, length[0]),
            "snapshot decoder",
        )
        try:
            target = ffi.new("GhosttyTerminal*")
            _check(lib.ghostty_snapshot_decoder_decode(decoder[0], target), "restore")
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
        copy._replace(target)
        return copy

    def _replace(self, target: Any) -> None:
        self._terminal._free()
        self._terminal._t = target
        self._terminal._free = weakref.finalize(
            self._terminal, lib.ghostty_terminal_free, target[0]
        )

    # Queries.

    def _configure(self) -> None:
        terminal = self._terminal
        terminal.on_reply(self._answer)
        # Without room for pictures a program cannot make the model read files of this machine.
        self._set("KITTY_IMAGE_STORAGE_LIMIT", ffi.new("uint64_t*", 0))
        self._set("CONTINUATION_MAX_BYTES", ffi.new("size_t*", _UNFINISHED_MAX_BYTES))
        for name, value in (("FOREGROUND", (0xD8,) * 3), ("BACKGROUND", (0x10,) * 3)):
            color = ffi.new("GhosttyColorRgb*", dict(zip("rgb", value, strict=True)))
            self._set(f"COLOR_{name}", color)
        size = ffi.callback("GhosttyTerminalSizeFn", self._tell_size)
        scheme = ffi.callback("GhosttyTerminalColorSchemeFn", _tell_scheme)
        self._callbacks = (size, scheme)
        self._set("SIZE", size)
        self._set("COLOR_SCHEME", scheme)

    def _set(self, name: str, value: Any) -> None:
        option = getattr(lib, f"GHOSTTY_TERMINAL_OPT_{name}")
        _check(lib.ghostty_terminal_set(self._terminal._t[0], option, value), f"set {name}")

    def _answer(self, data: bytes) -> None:
        if self.on_answer is not None and (answer := safe_answers(data)):
            self.on_answer(answer)

    def _tell_size(self, terminal: Any, userdata: Any, out: Any) -> bool:
        out.rows, out.columns = self.rows, self.columns
        out.cell_width, out.cell_height = 8, 16
        return True


def _tell_scheme(terminal: Any, userdata: Any, out: Any) -> bool:
    out[0] = lib.GHOSTTY_COLOR_SCHEME_DARK
    return True


def _handle(kind: str, make: Callable[[Any, Any], int]) -> Any:
    handle = ffi.new(f"{kind}*")
    _check(make(ffi.NULL, handle), kind)
    return handle


def _check(result: int, what: str) -> None:
    if result:
        raise RuntimeError(f"libghostty-vt could not {what}: {result}")


_kinds: dict[int, tuple[int, int, int, int, bool, Zone]] = {}


def _kind_of(cell: int) -> tuple[int, int, int, int, bool, Zone]:
    """Its code point, content tag, width, number of its style, and whether it is a link; its zone.

    They follow from the number alone, and few kinds of cells are on a screen.
    """
    if (kind := _kinds.get(cell)) is None:
        if len(_kinds) > _MAX_CELL_KINDS:
            _kinds.clear()
        values = [_cell_value(cell, name) for name in _CELL_KEYS]
        code, tag, wide, style, is_link, zone = values
        kind = _kinds[cell] = (code, tag, wide, style, bool(is_link), _ZONES[zone])
    return kind


def _cell_value(cell: int, name: str) -> int:
    kind = {"CODEPOINT": "uint32_t*", "STYLE_ID": "uint16_t*", "HAS_HYPERLINK": "bool*"}
    out = ffi.new(kind.get(name, "int*"))
    if lib.ghostty_cell_get(cell, getattr(lib, f"GHOSTTY_CELL_DATA_{name}"), out):
        return 0
    return int(out[0])


def _background(cell: int, tag: int) -> Color:
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        number = ffi.new("uint8_t*")
        lib.ghostty_cell_get(cell, lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, number)
        return int(number[0])
    color = ffi.new("GhosttyColorRgb*")
    lib.ghostty_cell_get(cell, lib.GHOSTTY_CELL_DATA_COLOR_RGB, color)
    return (color.r, color.g, color.b)


def _color(color: Any) -> Color:
    if color.tag == lib.GHOSTTY_STYLE_COLOR_PALETTE:
        return int(color.value.palette)
    if color.tag == lib.GHOSTTY_STYLE_COLOR_RGB:
        rgb = color.value.rgb
        return (rgb.r, rgb.g, rgb.b)
    return None


def _first_of(margins: bytes) -> tuple[int, int]:
    """The top row and the left column of the scrolling region, counted from 0."""
    top = left = 0
    for part in margins.split(b"\x1b["):
        first = part.split(b";")[0]
        if part.endswith(b"r") and first.isdigit():
            top = int(first) - 1
        elif part.endswith(b"s") and first.isdigit():
            left = int(first) - 1
    return top, left
