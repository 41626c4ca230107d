"""Imports asyncssh without what no connection between two programs of one machine needs.

It searches for optional C libraries, which starts ldconfig and a compiler. It knows certificates of
X.509, whose modules are a third of the library below it. And it takes one name from
typing_extensions, which `typing` has as well.
"""

from __future__ import annotations

import ctypes.util
import sys
import typing

# What asyncssh finds instead; without certificates it goes on as with an old library.
_STAND_INS = {"asyncssh.crypto.x509": None, "typing_extensions": typing}

_find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: None
_taken = {name: found for name, found in _STAND_INS.items() if name not in sys.modules}
sys.modules.update(_taken)  # type: ignore[arg-type]
try:
    import asyncssh  # noqa: F401
finally:
    ctypes.util.find_library = _find_library
    for _name in _taken:
        del sys.modules[_name]
