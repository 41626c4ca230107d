"""Reads an audit log: its older files first, then the file itself, and what is added to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from exec_server.audit.chain import LinePlace, placed
from exec_server.errors import ConfigurationError

# How often a file is looked at while there is nothing new in it.
_PAUSE_SECONDS = 0.2


def files_of(path: str) -> list[str]:
    """The files of a log that are there, the oldest first: FILE.2, FILE.1, FILE."""
    found = []
    number = 1
    while os.path.exists(f"{path}.{number}"):
        found.append(f"{path}.{number}")
        number += 1
    found.reverse()
    return [*found, path] if os.path.exists(path) or not found else found


def lines_of(path: str) -> Iterator[tuple[LinePlace, bytes]]:
    """All lines of a log with their places; an unfinished last line is one, too.

    Raises ConfigurationError if a file cannot be read.
    """
    for name in files_of(path):
        with _opened(name) as file:
            yield from placed(name, (line.removesuffix(b"\n") for line in file))


def follow(
    path: str, *, pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS)
) -> Iterator[bytes]:
    """All lines of a log, and then each one that is added, for ever; the file may be rotated."""
    for name in files_of(path)[:-1]:
        with _opened(name) as older:
            yield from (line.removesuffix(b"\n") for line in older)
    while True:
        with _opened(path) as file:
            yield from _until_replaced(path, file, pause)


def _until_replaced(path: str, file: BinaryIO, pause: Callable[[], None]) -> Iterator[bytes]:
    part = b""
    while True:
        # This is asked first: what was written before the file was renamed is read below.
        is_replaced = _is_replaced(path, file)
        for piece in file:
            part += piece
            if part.endswith(b"\n"):
                yield part[:-1]
                part = b""
        if is_replaced:
            return
        pause()


def _is_replaced(path: str, file: BinaryIO) -> bool:
    """True if there is another file at *path*."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        # It was renamed, and the next one is not there yet.
        return False
    here = os.fstat(file.fileno())
    return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as exc:
        raise ConfigurationError(f"cannot read the audit log {path}: {exc.strerror}") from exc
