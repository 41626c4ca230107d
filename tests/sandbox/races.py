"""Swaps directories and links while sandboxes are started, and looks for one that got it wrong.

``python -m tests.sandbox.races [SECONDS]`` runs every race for so long (60 by default); the test
suite runs each for a short time. A race needs luck to be lost, so a longer run proves more. Each
run counts how its starts ended. A start was *caught* if bubblewrap had finished a sandbox with
something else in it than was judged, and the guard did not let the command run: only such a start
has met the race. A run without one proves nothing and fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from exec_server.protocol import sandbox as contexts
from exec_server.sandbox.model import NOT_RUN
from tests.sandbox.policies import at, managed, special
from tests.support.files import uri
from tests.support.servers import start_server
from tests.support.wire import Finished, Wire

_AT_FDCWD, _EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)
# So many starts are under way at the same time.
_AT_ONCE = 4
SECRET = b"the secret of the race"
# Between two swaps there is no pause, or one of up to so many microseconds, more often a short one.
# Both the short time between two mounts and the long one of a whole start are met in this way.
_LONGEST_PAUSE = 20_000
_SHORTEST_PAUSE = 20
# So many seconds more are run until the race is met once.
_PATIENCE = 40.0


class Race(NamedTuple):
    """Two names that change places, and a command that must gain nothing from it."""

    one: Path
    other: Path
    sandbox: dict[str, Any]
    cwd: Path
    script: str
    # A directory outside in which nothing may appear.
    untouched: Path


class Outcome:
    """How the starts of one run ended."""

    def __init__(self) -> None:
        self.starts = 0
        # The command ran; or a swap was noticed when the policy was judged, when its paths were
        # opened, by bubblewrap, by the guard in the finished sandbox, or while the command ran.
        self.ran = self.judged = self.opened = self.failed = self.caught = self.ended = 0
        self.escapes: list[str] = []

    def count(self, done: Finished) -> None:
        self.starts += 1
        is_replaced = b"was replaced while the sandbox was being prepared" in done.stderr
        if b"ran" in done.stdout:
            self.ran += 1
        elif is_replaced and done.exit_code == NOT_RUN:
            self.caught += 1
        elif is_replaced:
            self.opened += 1
        elif b"bwrap: " in done.stderr:
            self.failed += 1
        elif b"a program outside of the sandbox" in done.stderr:
            self.ended += 1
        else:
            self.judged += 1
        if SECRET in done.stdout:
            self.escapes.append(f"start {self.starts} has read the secret")

    def __str__(self) -> str:
        return (
            f"{self.starts} starts: {self.caught} caught in the finished sandbox, "
            f"{self.failed} failed in bubblewrap, {self.opened} noticed when paths were opened, "
            f"{self.judged} when they were judged, {self.ended} while the command ran; "
            f"{self.ran} ran; {len(self.escapes)} escapes"
        )


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
    """Run one race for so long, and longer if it was not met."""
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
    outcome = Outcome()

    def goes_on() -> bool:
        now = time.monotonic()
        return now < deadline or (not outcome.caught and now < deadline + _PATIENCE)

    async def one(client: int) -> None:
        async with Wire(url) as wire:
            await wire.initialize()
            number = 0
            while goes_on():
                number += 1
                argv = ["/bin/sh", "-c", race.script]
                name, cwd = f"p{client}-{number}", uri(race.cwd)
                outcome.count(await wire.run(name, argv, sandbox=race.sandbox, cwd=cwd))

    async with asyncio.TaskGroup() as tasks:
        for client in range(_AT_ONCE):
            tasks.create_task(one(client))
    return outcome


@contextlib.contextmanager
def _swapping(one: Path, other: Path) -> Iterator[None]:
    """*one* and *other* change places all the time; at the end each is where it was."""
    is_over = threading.Event()
    names = os.fsencode(one), os.fsencode(other)
    chance = random.Random()

    def swap() -> None:
        count = 0
        while not is_over.is_set() or count % 2:
            if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE):
                return
            count += 1
            pause = _LONGEST_PAUSE ** chance.random()
            if pause > _SHORTEST_PAUSE:
                is_over.wait(pause / 1_000_000)

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
        print(f"{name}: {outcome}", flush=True)
        if not outcome.caught:
            print("The race was never met, so this run proves nothing.")
        failed = failed or bool(outcome.escapes) or not outcome.caught
        for escape in outcome.escapes[:5]:
            print(escape)
    sys.exit(failed)


if __name__ == "__main__":
    main()
