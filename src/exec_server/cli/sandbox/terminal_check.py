"""The check of `exec-server doctor` for models of terminals: which engine there is."""

from __future__ import annotations

from exec_server.cli.sandbox.doctor_checks import Check
from exec_server.terminal import engine_name


def terminal_check(name: str | None = None) -> Check:
    """The engine that models of terminals run on."""
    name = name or engine_name()
    if name == "ghostty":
        return Check("screens", True, "libghostty-vt")
    remedy = "pip install pyghostty, on a platform for which it has a wheel"
    if name is None:
        return Check("screens", False, None, "no terminal engine can be imported", remedy)
    found = f"{name}, which is pure Python and slower"
    return Check("screens", True, found, None, remedy)
