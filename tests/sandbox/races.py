"""Swaps directories and links while sandboxes are started, and looks for one that got it wrong.

``python -m tests.sandbox.races [SECONDS]`` runs every race for so long (60 by default); the test
suite runs each for a short time. A race needs luck to be lost, so a longer run proves more.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from exec_server.protocol import sandbox as contexts
from tests.sandbox.policies import at, managed, special
from tests.support.files import uri
from tests.support.servers import start_server
from tests.support.wire import Wire

_AT_FDCWD, _EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)
# So many starts are under way at the same time.
_AT_ONCE = 4
SECRET = b"the secret of the race"


class Race(NamedTuple):
    """Two names that change places, and a command that must gain nothing from it."""

    one: Path
    other: Path
    sandbox: dict[str, Any]
    cwd: Path
    script: str
    # A directory outside in which nothing may appear.
    untouched: Path


class Outcome(NamedTuple):
    starts: int
    # The starts in which the command ran.
    ran: int
    escapes: list[str]


def write_outside(base: Path, outside: Path) -> Race:
    """The directory above the workspace changes places with a link out of the sandbox."""
    workspace = base / "above" / "workspace"
    workspace.mkdir(parents=True)
    (outside / "workspace").mkdir()
    (base / "link").symlink_to(outside)
    context = contexts.workspace_write([workspace], protect_metadata=False).wire
    script = f"echo x > {workspace}/escaped; echo ran"
    return Race(base / "above", base / "link", context, base, script, outside / "workspace")


def write_beside(base: Path, outside: Path) -> Race:
    """The workspace itself changes places with a link out of the sandbox."""
    workspace = base / "above" / "workspace"
    workspace.mkdir(parents=True)
    (base / "above" / "link").symlink_to(outside)
    context = contexts.workspace_write([workspace], protect_metadata=False).wire
    script = f"echo x > {workspace}/escaped; echo ran"
    return Race(workspace, base / "above" / "link", context, base, script, outside)


def read_closed(base: Path, outside: Path) -> Race:
    """A read-only directory changes places with a relative link to a closed one."""
    (base / "fixed").mkdir()
    closed = base.parent / f"{base.name}-closed"
    closed.mkdir()
    (closed / "secret").write_bytes(SECRET)
    (base / "link").symlink_to(f"../{closed.name}")
    context = managed(
        special("root", "read"), at(base, "write"), at(base / "fixed", "read"), at(closed, "deny")
    )
    script = f"cat {base}/fixed/secret; cat {base}/link/secret; cat {closed}/secret; echo ran"
    return Race(base / "fixed", base / "link", context, base, script, outside)


def hide_elsewhere(base: Path, outside: Path) -> Race:
    """The directory above a closed file changes places with a link out of the sandbox."""
    (base / "above").mkdir()
    (base / "above" / "closed").write_bytes(b"")
    (outside / "closed").write_bytes(b"")
    (base / "link").symlink_to(outside)
    context = managed(special("root", "read"), at(base, "write"), at(base / "above/closed", "deny"))
    script = f"echo x > {base}/above/closed; echo x > {base}/above/new; echo ran"
    return Race(base / "above", base / "link", context, base, script, outside)


RACES = {race.__name__: race for race in (write_outside, write_beside, read_closed, hide_elsewhere)}


def run(name: str, seconds: float) -> Outcome:
    """Run one race for so long."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="race-") as base,
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="race-outside-") as outside,
        start_server() as server,
    ):
        race = RACES[name](Path(base), Path(outside))
        before = _seen(race.untouched)
        try:
            with _swapping(race.one, race.other):
                outcome = asyncio.run(_starts(server.url, race, seconds))
        finally:
            _tidy(Path(f"{base}-closed"))
        after = _seen(race.untouched)
        if after != before:
            outcome.escapes.append(f"{race.untouched} has {after}, and had {before}")
        return outcome


def _seen(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _tidy(folder: Path) -> None:
    if folder.exists():
        (folder / "secret").unlink()
        folder.rmdir()


async def _starts(url: str, race: Race, seconds: float) -> Outcome:
    deadline = time.monotonic() + seconds
    escapes: list[str] = []
    counts = [0, 0]

    async def one(number: int) -> None:
        async with Wire(url) as wire:
            await wire.initialize()
            while time.monotonic() < deadline:
                counts[0] += 1
                done = await wire.run(
                    f"p{number}-{counts[0]}",
                    ["/bin/sh", "-c", race.script],
                    sandbox=race.sandbox,
                    cwd=uri(race.cwd),
                )
                counts[1] += b"ran" in done.stdout
                if SECRET in done.stdout:
                    escapes.append(f"start {counts[0]} has read the secret")

    async with asyncio.TaskGroup() as tasks:
        for number in range(_AT_ONCE):
            tasks.create_task(one(number))
    return Outcome(counts[0], counts[1], escapes)


@contextlib.contextmanager
def _swapping(one: Path, other: Path) -> Iterator[None]:
    """*one* and *other* change places without a pause; at the end each is where it was."""
    is_over = threading.Event()
    names = os.fsencode(one), os.fsencode(other)

    def swap() -> None:
        count = 0
        while not is_over.is_set() or count % 2:
            if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE):
                return
            count += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    failed = False
    for name in RACES:
        outcome = run(name, seconds)
        print(f"{name}: {outcome.starts} starts, {outcome.ran} ran, {len(outcome.escapes)} escapes")
        failed = failed or bool(outcome.escapes)
        print(*outcome.escapes[:5], sep="\n", end="")
    sys.exit(failed)


if __name__ == "__main__":
    main()
