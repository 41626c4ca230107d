"""What a test may not leave behind: tasks, descriptors, children, and what a server remembers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from exec_server.server.server import ExecServer

# How long what has been let go of may take to be gone; nothing waits for it when all is well.
SETTLE_SECONDS = 60.0

# What is read of a process, a thread or a descriptor that ends meanwhile.
GONE = (FileNotFoundError, ProcessLookupError)


class Held(NamedTuple):
    """What this process and its event loop hold at one moment."""

    tasks: frozenset[asyncio.Task[object]]
    # How many of each kind: an event loop replaces some of its own between two runs.
    descriptors: Counter[str]
    children: frozenset[int]

    @classmethod
    def now(cls) -> Held:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        return cls(frozenset(tasks), Counter(open_descriptors().values()), children())

    def since(self, before: Held) -> list[str]:
        """What came after *before* and is still there, in words."""
        return [
            *(f"task {task!r}" for task in self.tasks - before.tasks),
            *(f"{n} of {kind}" for kind, n in (self.descriptors - before.descriptors).items()),
            *(f"child {pid} ({command(pid)})" for pid in self.children - before.children),
        ]


async def prepare_loop() -> None:
    """Make the loop open what it opens only once, when it first listens."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    server.close()
    await server.wait_closed()


def open_descriptors(pid: int | str = "self") -> dict[int, str]:
    """Every descriptor of a process and what kind of thing it stands for."""
    found: dict[int, str] = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except GONE:
            # The one that listed the directory, or one that was closed meanwhile.
            continue
        found[int(name)] = re.sub(r":\[\d+\]", "", target)
    return found


def children(pid: int | str = "self") -> frozenset[int]:
    """The processes whose parent is *pid*, zombies included."""
    found: set[int] = set()
    with contextlib.suppress(*GONE):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(*GONE):
                found.update(map(int, (task / "children").read_text().split()))
    return frozenset(found)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "gone"


def remembered(core: ExecServer) -> dict[str, int]:
    """How much a server remembers of its clients; all zero when it has none."""
    spawner = core._spawner
    return {
        "connections": len(core._contexts),
        "sessions": len(core._sessions),
        "attachments": len(core._attachments._attachments),
        "starts": len(spawner._pending),
        "processes": len(spawner._live),
        "descriptors under way": len(spawner._link._fds) if spawner._link is not None else 0,
    }


async def eventually(is_so: Callable[[], object], what: str = "it did not come to be") -> None:
    """Let the loop run until *is_so*."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS
    while not is_so():
        assert loop.time() < deadline, what
        await asyncio.sleep(0)


async def forgotten(core: ExecServer) -> None:
    """Returns once *core* remembers no session."""
    try:
        await eventually(lambda: not any(remembered(core).values()))
    except AssertionError:
        raise AssertionError(f"still remembered: {remembered(core)}") from None


async def nothing_since(before: Held) -> None:
    """Returns once everything that came after *before* is gone again."""
    try:
        await eventually(lambda: not Held.now().since(before))
    except AssertionError:
        raise AssertionError("left behind: " + ", ".join(Held.now().since(before))) from None
