"""Which modules a program loads, by its `-X importtime`."""

from __future__ import annotations

import re

_ROW = re.compile(r"import time:\s+\d+ \|\s+\d+ \|\s+(\S+)")


def loaded(report: str) -> set[str]:
    return {match[1] for match in map(_ROW.match, report.splitlines()) if match is not None}


def unwanted(modules: set[str], *names: str) -> set[str]:
    """The *modules* that are one of *names*, or below one that is a package."""
    return {module for module in modules for name in names if f"{module}.".startswith(f"{name}.")}


def own(modules: set[str]) -> int:
    return sum(module.startswith("exec_server") for module in modules)
