"""Loads libraries that every command needs, without what they can do without.

Only the whole program does this: another program may use the same libraries in other ways.
"""

from __future__ import annotations

import sys
from types import ModuleType


def load_argparse() -> None:
    """Load argparse without gettext: our texts are English, and so are those of argparse then."""
    if "argparse" in sys.modules or "gettext" in sys.modules:
        return
    stand_in = ModuleType("gettext")
    vars(stand_in).update(gettext=str, ngettext=_plural)
    sys.modules["gettext"] = stand_in
    try:
        import argparse  # noqa: F401
    finally:
        del sys.modules["gettext"]


def load_msgspec() -> None:
    """Load msgspec without typing_extensions, which it uses if it is installed.

    msgspec takes the same names from `typing` otherwise; our shapes use no other ones.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _plural(one: str, several: str, number: int) -> str:
    return one if number == 1 else several
