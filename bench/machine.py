"""Where and with what a run was made: nothing that names a host, a person or a path."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = ("picows", "uvloop", "msgspec", "pybase64")


def facts() -> dict[str, str]:
    """What figures depend on, in the order in which it is shown."""
    return {
        "Processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "Memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Libraries": ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES),
    }


def describe(line: str) -> str:
    """What the program of a server's command line says to ``--version``."""
    program = shlex.split(line)[0]
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    first, _, _ = done.stdout.strip().partition("\n")
    return first if done.returncode == 0 and len(first) < 60 else ""


def one_core() -> frozenset[int]:
    """A core that we may use."""
    return frozenset({min(os.sched_getaffinity(0))})


def load() -> float:
    return os.getloadavg()[0]


def _processor() -> str:
    lines: Iterable[str] = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "(absent)"
