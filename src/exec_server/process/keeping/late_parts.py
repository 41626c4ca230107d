"""The parts of a keeper that are loaded when they are first needed."""

from __future__ import annotations

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def confine() -> Any:
    """What confines programs."""
    from exec_server.sandbox import in_keeper

    return in_keeper


def limiting() -> Any:
    """What holds limits."""
    from exec_server.process.limiting import limiter

    return limiter


def exit_facts() -> Any:
    """What finds out how programs end."""
    from exec_server.process import exit_facts

    return exit_facts
