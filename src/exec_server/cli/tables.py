"""Output of facts: columns for people, JSON for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import errors_told
from exec_server.cli.output_format import without_controls, without_surrogates

# The last column of a table is not cut to less than this.
_LEAST_ROOM = 8


class TablePrinter:
    """Columns, printed a page of rows at a time.

    A column is as wide as its widest cell so far. Lines are not longer than *width* if that leaves
    the last column some room: then its cells are cut.
    """

    def __init__(self, headings: Sequence[str], *, width: int | None = None) -> None:
        self._widths = [0 for _ in headings]
        self._waiting = [list(headings)]
        self._width = width

    def add(self, rows: Iterable[Sequence[str]]) -> None:
        """Print a page of rows; the last column is not padded."""
        lines = self._waiting + [[readable(cell) for cell in row] for row in rows]
        self._waiting = []
        columns = zip(self._widths, *(map(len, line) for line in lines), strict=True)
        self._widths = [max(column) for column in columns]
        room = None if self._width is None else self._width - sum(self._widths[:-1], self._gaps)
        for line in lines:
            if room is not None and room >= _LEAST_ROOM and len(line[-1]) > room:
                line[-1] = line[-1][: room - 1] + "…"
            cells = [cell.ljust(width) for cell, width in zip(line, self._widths, strict=True)]
            print("  ".join(cells).rstrip())
        sys.stdout.flush()

    @property
    def _gaps(self) -> int:
        return 2 * (len(self._widths) - 1)


class JsonListPrinter:
    """One JSON list, printed a page of values at a time; `end` must be called."""

    def __init__(self) -> None:
        self._is_begun = False

    def add(self, values: Iterable[Any]) -> None:
        for value in values:
            sys.stdout.write(",\n  " if self._is_begun else "[\n  ")
            sys.stdout.write(_formatted(value).replace("\n", "\n  "))
            self._is_begun = True
        sys.stdout.flush()

    def end(self) -> None:
        sys.stdout.write("\n]\n" if self._is_begun else "[]\n")


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None
) -> None:
    """Print *rows* in columns under their headings; see `TablePrinter`."""
    TablePrinter(headings, width=width).add(rows)


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None if it is another file."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def print_json(value: Any) -> None:
    sys.stdout.write(_formatted(value) + "\n")


def print_json_failure(status: int, **facts: Any) -> None:
    """Print the object that tells programs why a command failed; the errors were told already."""
    told = errors_told() or ["the command failed"]
    failure: dict[str, Any] = {"exitCode": status, "error": told[0]}
    if len(told) > 1:
        failure["errors"] = told
    print_json(failure | facts)


def failure_teller(output: str) -> Callable[[int], None] | None:
    """The `tell` of `run_to_exit_status` for a command whose format is *output*."""
    return print_json_failure if output == "json" else None


def print_json_entries(entries: list[Any]) -> None:
    """Print a list; if an error was told, the object of a failure that contains the list."""
    if errors_told():
        print_json_failure(exit_codes.FAILED, entries=entries)
    else:
        print_json(entries)


def _formatted(value: Any) -> str:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(without_surrogates(value))
    return without_controls(msgspec.json.format(encoded, indent=2).decode())


def readable(text: str) -> str:
    """Text of another program, with "?" for characters that could control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)
