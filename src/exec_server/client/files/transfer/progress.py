"""How far a transfer is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, kw_only=True):
    """One object, updated as the transfer goes on."""

    files: int = 0
    bytes: int = 0
    # Zero until everything has been listed.
    total_files: int = 0
    total_bytes: int = 0
    # Of `bytes`, those that were there already.
    kept_bytes: int = 0


# Called after every file and every block, on the event loop: it should be quick.
OnProgress = Callable[[Progress], None]


class Tracker:
    def __init__(self, on_progress: OnProgress | None) -> None:
        self.progress = Progress()
        self._on_progress = on_progress

    def expect(self, *, files: int, bytes: int) -> None:
        self.progress.total_files = files
        self.progress.total_bytes = bytes
        self.tell()

    def keep(self, *, files: int, bytes: int) -> None:
        """What is there already counts as done."""
        self.progress.kept_bytes += bytes
        self.advance(files=files, bytes=bytes)

    def advance(self, *, files: int = 0, bytes: int = 0) -> None:
        self.progress.files += files
        self.progress.bytes += bytes
        self.tell()

    def tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)
