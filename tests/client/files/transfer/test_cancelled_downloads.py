"""Downloads that are cancelled: their threads have ended when they have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.files.transfer import delta_download, download, local_tree
from exec_server.limits import MIB
from tests.requirements import requirement
from tests.support.leaks import eventually
from tests.support.wire import PATIENCE


def _open_below(folder: Path) -> list[str]:
    """The files below *folder* that are open in this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if path.startswith(str(folder))]


@requirement("cli/files:delta-interrupted")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("has_old", "module", "name"),
    [
        (False, local_tree, "open_part"),
        (False, download, "_reusable"),
        (False, local_tree, "write_all"),
        (False, local_tree, "finish_part"),
        (True, local_tree, "open_part"),
        (True, delta_download, "_can_share"),
        (True, delta_download, "write_at"),
        (True, local_tree, "finish_part"),
    ],
)
async def test_a_cancelled_download_waits_for_its_thread(
    client, tmp_path: Path, monkeypatch, has_old: bool, times: int, module: Any, name: str
):
    """Its descriptors are closed then, and another file may get their numbers."""
    begun, may_go_on = threading.Event(), threading.Event()
    work = getattr(module, name)

    def slowly(*args: Any) -> Any:
        begun.set()
        may_go_on.wait(PATIENCE)
        return work(*args)

    monkeypatch.setattr(module, name, slowly)
    content = os.urandom(9 * MIB)
    (tmp_path / "new").write_bytes(content)
    if has_old:
        (tmp_path / "copy").write_bytes(content[: 8 * MIB] + os.urandom(1000))
        os.utime(tmp_path / "copy", (1, 1))
    task = asyncio.create_task(client.fs.download(tmp_path / "new", tmp_path / "copy"))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    for _ in range(times):
        task.cancel()
        await asyncio.wait({task}, timeout=0.05)
    is_early = task.done()
    may_go_on.set()
    await asyncio.wait({task})
    assert task.cancelled() and not is_early
    # The server, which is in this process, closes its own in a moment.
    await eventually(lambda: not _open_below(tmp_path))
