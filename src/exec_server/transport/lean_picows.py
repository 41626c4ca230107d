"""Loads the compiled part of picows without the rest of its package, which a start has to wait for.

We use only the protocol of picows. Its package also loads what opens WebSockets through proxies and
with a transport of its own, which takes longer than all modules of a server. The module
`picows.picows` needs its package only to find `picows.common`. So an empty package stands in for
it while that module is loaded. `import picows` later loads the whole package as usual.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType

_PACKAGE = "picows"
# Another library of the same author, with transports of its own.
_TRANSPORTS = "aiofastnet"


def load() -> None:
    """Load `picows.picows`, if no other thread could see the empty package meanwhile."""
    if _PACKAGE in sys.modules or threading.active_count() > 1:
        return
    spec = PathFinder.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        return
    stand_in = ModuleType(_PACKAGE)
    stand_in.__spec__, stand_in.__path__ = spec, list(spec.submodule_search_locations)
    sys.modules[_PACKAGE] = stand_in
    try:
        import_module(f"{_PACKAGE}.picows")
    finally:
        del sys.modules[_PACKAGE]


@contextlib.contextmanager
def without_transports() -> Iterator[None]:
    """Let picows ask in this block, without loading them, if a transport is one of aiofastnet's.

    If aiofastnet was never loaded, no transport can be its own. With other threads, which might
    import it meanwhile, picows loads it as usual.
    """
    if _TRANSPORTS in sys.modules or threading.active_count() > 1:
        yield
        return
    sys.modules[_TRANSPORTS] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_TRANSPORTS]
