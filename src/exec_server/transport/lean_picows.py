"""Loads the compiled part of picows without the rest of its package, which a start has to wait for.

We use only the protocol of picows. Its package also loads what opens WebSockets through proxies and
with a transport of its own, which takes longer than all modules of a server. The module
`picows.picows` needs its package only to find `picows.common`. So an empty package stands in for
it while that module is loaded. `import picows` later loads the whole package as usual.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType

_PACKAGE = "picows"
# Another library of the same author, with transports of its own.
_TRANSPORTS = "aiofastnet"

_others_import_nothing = False


def use() -> None:
    """From now on, other threads are no reason to load more: they import nothing of this."""
    global _others_import_nothing
    _others_import_nothing = True


def load() -> None:
    """Load `picows.picows`, if no other thread could see the empty package meanwhile."""
    if _PACKAGE in sys.modules or not _is_unseen():
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


def _is_unseen() -> bool:
    return _others_import_nothing or threading.active_count() == 1


class _WithoutTransports:
    """Hides aiofastnet. (A generator in its place would take as long as what it saves.)"""

    __slots__ = ("_is_hidden",)

    def __enter__(self) -> None:
        self._is_hidden = _TRANSPORTS not in sys.modules and _is_unseen()
        if self._is_hidden:
            sys.modules[_TRANSPORTS] = None  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        if self._is_hidden:
            del sys.modules[_TRANSPORTS]


def without_transports() -> _WithoutTransports:
    """Let picows ask in a block, without loading them, if a transport is one of aiofastnet's.

    If aiofastnet was never loaded, no transport can be its own. With other threads, which might
    import it meanwhile, picows loads it as usual, but for a program that says `use`.
    """
    return _WithoutTransports()
