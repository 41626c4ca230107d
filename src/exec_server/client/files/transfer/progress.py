"""The progress of a transfer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, kw_only=True):
    """The progress of a transfer: one object, which is updated as the transfer goes on."""

    files: int = 0
    bytes: int = 0
    # Zero until everything has been listed.
    total_files: int = 0
    total_bytes: int = 0
    # The part of `bytes` that was at the destination already.
    kept_bytes: int = 0


# It is called in the event loop after every file and every block, so it should be quick.
OnProgress = Callable[[Progress], None]


class Tracker:
    """Counts, and calls *on_progress* after each change."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self.progress = Progress()
        self._on_progress = on_progress

    def expect(self, *, files: int, bytes: int) -> None:
        self.progress.total_files = files
        self.progress.total_bytes = bytes
        self.tell()

    def keep(self, *, files: int, bytes: int) -> None:
        """Count what is at the destination already as done."""
        self.progress.kept_bytes += bytes
        self.advance(files=files, bytes=bytes)

    def advance(self, *, files: int = 0, bytes: int = 0) -> None:
        self.progress.files += files
        self.progress.bytes += bytes
        self.tell()

    def tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)
