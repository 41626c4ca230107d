"""Loading modules quickly."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from exec_server.cli.late_modules import late_modules


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Load modules in this block: the garbage collector looks neither at them nor meanwhile.

    Almost all objects that modules make stay for as long as the program runs. To look for garbage
    among them takes a tenth of the time of a start. What libraries rarely use is not loaded.
    """
    is_collected = gc.isenabled()
    gc.disable()
    try:
        with late_modules():
            yield
    finally:
        if is_collected:
            gc.freeze()
            gc.enable()
