"""What every engine offers, and the choice of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from exec_server.terminal.cells import Row, ScreenCursor
from exec_server.terminal.key_names import KeyModes

ENGINES = ("ghostty", "bittty")
# So many rows of 80 columns are kept above the screen; a row costs up to 1 KB.
SCROLLBACK_ROWS = 2000


class TerminalEngine(Protocol):
    """A terminal without a window: it takes what a program prints, and knows what is shown.

    It answers the queries of programs by `on_answer`, which may be called during `feed`; what it
    is told then belongs into the program's input.
    """

    on_answer: Callable[[bytes], None] | None

    @property
    def name(self) -> str: ...

    @property
    def has_zones(self) -> bool:
        """True if it knows which cells are prompts, typed input and output (OSC 133)."""

    def feed(self, data: bytes) -> None:
        """Take bytes; they may end anywhere, also inside a character or a sequence."""

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size; `bounded_size` says which one a very large terminal gets."""

    def close(self) -> None:
        """Free it; nothing else may be called then."""

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def is_between_sequences(self) -> bool:
        """True if it waits for no rest of a sequence or a character; False if it cannot tell."""

    @property
    def forgets_after(self) -> int | None:
        """So many lines of text leave nothing of what was there; None if they may.

        They may while a part of the screen scrolls.
        """

    @property
    def rows_kept(self) -> int:
        """At least so many of the rows that have left the screen last are kept above it."""

    @property
    def cursor(self) -> ScreenCursor: ...

    @property
    def title(self) -> str: ...

    @property
    def is_alternate(self) -> bool:
        """True while the alternate screen is shown, as by an editor."""

    def mode(self, number: int, *, is_ansi: bool = False) -> bool:
        """Whether a mode is set; DEC private modes unless *is_ansi*."""

    def lines(self) -> list[str]:
        """The rows as text, without blanks at their ends."""

    def text_rows(self) -> list[tuple[str, bool]]:
        """The rows as text, and whether the line goes on in the next row.

        Blanks at the end of a row are left out, unless its line goes on.
        """

    def cells(self) -> list[Row]:
        """The rows with their styles."""

    def output_lines(self) -> list[str]:
        """The rows as text, without what was typed at prompts, where that is known."""

    def mark(self, row: int) -> Any:
        """Remember a row of the screen; the mark moves with its text. `forget` it."""

    def row_of(self, mark: Any) -> int | None:
        """The row of a mark now, below 0 if it is above the screen; None if it is gone."""

    def forget(self, mark: Any) -> None: ...

    def history(self, count: int) -> list[str]:
        """The newest *count* rows above the screen, oldest first."""

    def dump(self, *, history: int = 0, joins_rows: bool = True) -> bytes:
        """Bytes that paint both screens, modes, title and cursor on a terminal of the same size.

        They contain no query. With *history* so many rows above the screen come first. Without
        *joins_rows* a terminal that has more columns is painted well, too, but forgets which rows
        belong to one line.
        """

    @property
    def key_modes(self) -> KeyModes: ...

    def encode_keys(self, *keys: str) -> bytes:
        """The bytes for keys such as `ctrl-c`, `up` or `hello`, in the modes in force."""


def engine_name() -> str | None:
    """The engine that `open_engine` takes; None if there is none. It is imported for this."""
    for name in ENGINES:
        try:
            _load(name)
        except (ImportError, OSError):
            continue
        return name
    return None


def open_engine(
    columns: int, rows: int, *, scrollback: int = SCROLLBACK_ROWS, engine: str | None = None
) -> TerminalEngine:
    """A new terminal; on libghostty where it can be loaded, on bittty elsewhere.

    Raises ImportError if the *engine* that was asked for, or all of them, cannot be imported.
    """
    name = engine or engine_name()
    if name is None:
        raise ImportError("no terminal engine can be imported: install pyghostty or bittty")
    return _load(name)(columns, rows, scrollback=scrollback)


class _Make(Protocol):
    def __call__(self, columns: int, rows: int, *, scrollback: int) -> TerminalEngine: ...


def _load(name: str) -> _Make:
    # Imported when it is used: pyghostty takes 0.2 s.
    if name == "ghostty":
        from exec_server.terminal.ghostty_engine import GhosttyEngine

        return GhosttyEngine
    from exec_server.terminal.bittty_engine import BitttyEngine

    return BitttyEngine
