"""Programs in a Python that has loaded nothing of ours yet."""

from __future__ import annotations

import subprocess
import sys


def words_of(program: str) -> list[str]:
    """The words that *program* prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
