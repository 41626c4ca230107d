"""Commands for files as processes of their own, and a tree to work on."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import OURS
from tests.support.wire import PATIENCE


class Finished:
    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = os.fsdecode(stdout)
        self.stderr = stderr.decode()


async def run(*words: Any, **options: Any) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *OURS,
        *map(os.fspath, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, stdout, stderr)


async def done(*words: Any, **options: Any) -> str:
    """The output of a command that must succeed and print no error."""
    finished = await run(*words, **options)
    assert (finished.status, finished.stderr) == (0, "")
    return finished.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A few files of all kinds."""
    root = tmp_path / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "file").write_bytes(b"content\n")
    (root / "file").chmod(0o640)
    (root / ".hidden").write_bytes(b"")
    (root / "sub" / "inner.py").write_bytes(b"print()\n")
    os.symlink("file", root / "link")
    os.utime(root / "file", (1_600_000_000, 1_600_000_000.5))
    return root
