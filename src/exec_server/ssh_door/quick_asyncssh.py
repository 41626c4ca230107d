"""Imports asyncssh without its search for optional C libraries.

The search starts ldconfig and a compiler, which takes longer than all the rest of the import. The
libraries have algorithms that no connection between two programs of one machine needs.
"""

from __future__ import annotations

import ctypes.util

_find_library = ctypes.util.find_library
ctypes.util.find_library = lambda name: None
try:
    import asyncssh  # noqa: F401
finally:
    ctypes.util.find_library = _find_library
