"""The command line of the measurements of recordings."""

from __future__ import annotations

import subprocess
import sys

from tests.support.source_tree import REPOSITORY


def test_floods_without_megabytes_are_left_out():
    words = [sys.executable, "bench/recordings.py", "--megabytes", "0", "--long-megabytes", "0"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
