"""One file with all packages, for machines that have a Python but no pip."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scripts.release.distributions import digest
from scripts.release.shell import ROOT, run


def make(wheel: Path, pythons: list[Path], scratch: Path, out: Path, epoch: str) -> Path:
    """Make *out* from *wheel* and the packages of requirements.lock, for all of *pythons*."""
    requirements = scratch / "requirements.txt"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    ours = f"exec-server @ {wheel.as_uri()} --hash=sha256:{digest(wheel)}\n"
    requirements.write_text(lock + ours, encoding="utf-8")
    words = [word for python in pythons for word in ("--python", str(python))]
    run(
        *(sys.executable, "-m", "pex", *words),
        *("--requirement", requirements, "--script", "exec-server", "--output-file", out),
        # The first start unpacks into a cache; later ones go straight to it, without Python's zip.
        *("--venv", "prepend", "--sh-boot", "--python-shebang", "/usr/bin/env python3"),
        *("--no-compile", "--disable-cache", "--no-build"),
        env={"SOURCE_DATE_EPOCH": epoch},
    )
    return out


def cpu_to_start(path: Path, home: Path) -> list[float]:
    """The seconds of CPU of ``--version``, the first time and once the cache is filled."""
    env = {"HOME": str(home), "PEX_ROOT": str(home / "cache")}
    seconds = []
    for _ in range(3):
        before = os.times()
        run(path, "--version", cwd=home, env=env)
        after = os.times()
        used = after.children_user + after.children_system
        seconds.append(used - before.children_user - before.children_system)
    return [seconds[0], min(seconds[1:])]
