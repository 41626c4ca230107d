"""Commands of a release: quiet if they work, with their whole output if they fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The slowest of them resolves and downloads all packages.
_SECONDS = 900


class ReleaseFailed(Exception):
    """A step failed; the text says why."""


def run(*words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output; raises ReleaseFailed with it if the command fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ReleaseFailed(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout}")
    return done.stdout
