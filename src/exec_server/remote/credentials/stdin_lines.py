"""Reads standard input in a thread, because it may be a pipe, a terminal or a file."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

_READ_BYTES = 64 * 1024


def watch_input(
    on_data: Callable[[bytes], None], on_end: Callable[[], None], *, fd: int = 0
) -> None:
    """Call *on_data* in the running event loop with what is read, and *on_end* at the end.

    The thread ends with the input, or with the process.
    """
    loop = asyncio.get_running_loop()

    def tell(callback: Callable[..., None], *data: bytes) -> bool:
        try:
            loop.call_soon_threadsafe(callback, *data)
        except RuntimeError:
            # The event loop is closed.
            return False
        return True

    def read() -> None:
        try:
            while data := os.read(fd, _READ_BYTES):
                if not tell(on_data, data):
                    return
        except OSError:
            pass
        tell(on_end)

    threading.Thread(target=read, name="standard input", daemon=True).start()
