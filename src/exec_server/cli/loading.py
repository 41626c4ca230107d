"""Loading modules quickly."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules in this block: the garbage collector looks neither at them nor meanwhile.

    Almost all objects that modules make stay for as long as the program runs. To look for garbage
    among them takes a tenth of the time of a start.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
