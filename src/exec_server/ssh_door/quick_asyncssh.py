"""Imports asyncssh without what no connection between two programs of one machine needs.

It searches for optional C libraries, which starts ldconfig and a compiler. It knows certificates of
X.509, whose modules take a seventh of the start of a door. And it takes one name from
typing_extensions, which `typing` has as well.
"""

from __future__ import annotations

import ctypes.util
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Self

# asyncssh goes on without this one, as with an old library.
_CERTIFICATES = "asyncssh.crypto.x509"
_TYPING = "typing_extensions"


def _take_the_place(name: str, module: ModuleType | None) -> None:
    if name not in sys.modules:
        sys.modules[name] = module  # type: ignore[assignment]


def _leave_the_place(name: str, module: ModuleType | None) -> None:
    if name in sys.modules and sys.modules[name] is module:
        del sys.modules[name]


def _load_the_real_one(name: str) -> Any:
    """Another name is wanted, by a newer version for example."""
    if name.startswith("__"):
        # Each import asks for some of these.
        raise AttributeError(name)
    _leave_the_place(_TYPING, _typing)
    return getattr(import_module(_TYPING), name)


_typing = ModuleType(_TYPING)
vars(_typing).update(Self=Self, __getattr__=_load_the_real_one)

_find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: None
_take_the_place(_CERTIFICATES, None)
_take_the_place(_TYPING, _typing)
try:
    import asyncssh  # noqa: F401
finally:
    ctypes.util.find_library = _find_library
    _leave_the_place(_CERTIFICATES, None)
    _leave_the_place(_TYPING, _typing)
