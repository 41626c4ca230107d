"""A server that runs as root or as `nobody`, and places for its sandboxed commands."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.escape.users import user
from tests.sandbox.test_processes import at, managed, special
from tests.support.servers import CHILDREN, ServerProcess, start_server
from tests.support.wire import Wire


class Place:
    """A workspace, a directory outside of it, and a server that runs as one user."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.workspace, self.outside = folder / "workspace", folder / "outside"
        for path in (self.workspace / ".git", self.outside):
            path.mkdir(parents=True)
        for name in (".git/config", "mine"):
            (self.workspace / name).write_text("old")
        for name in ("old", "secret"):
            (self.outside / name).write_text("old")
        os.mkfifo(self.outside / "fifo")
        (self.workspace / "out").symlink_to(self.outside)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.outside / "listening"))
        self.listener.listen()

        self.uid, self.gid = os.geteuid(), os.getegid()

    def own(self, uid: int, gid: int) -> None:
        self.uid, self.gid = uid, gid
        self.own_all()

    def own_all(self) -> None:
        """Give everything to the user of the server."""
        for path in (self.workspace, self.outside):
            for each in (path, *path.rglob("*")):
                os.chown(each, self.uid, self.gid, follow_symlinks=False)

    def sandbox(self, backend: str, *entries: Any, **members: Any) -> Any:
        is_landlock = backend == "landlock"
        rules = (special("root", "read"), at(self.workspace, "write"), *entries)
        return managed(
            *rules, useLegacyLandlock=is_landlock, protectMetadata=not is_landlock, **members
        )

    def argv(self, *attempts: str) -> list[str]:
        places = (self.workspace, self.outside, self.outside / "listening")
        script = str(CHILDREN / "tries_what_is_refused.py")
        return ["python3", "-I", "-S", "-B", script, *map(str, places), *attempts]

    def shown(self, what: tuple[str, str, str]) -> tuple[str, str, str]:
        kind, operation, target = what
        return (
            kind,
            operation,
            target.format(workspace=self.workspace, outside=self.outside),
        )


@pytest.fixture(scope="module", params=["root", "nobody"])
def place(request) -> Iterator[Place]:
    found = user(request.param)
    if found is None:
        pytest.skip(f"no server can run as {request.param} here")
    env = {"PYTHONPATH": found.path, "HOME": "/"}
    with (
        tempfile.TemporaryDirectory(prefix="denials-") as folder,
        start_server(command=found.command, env=env, cwd="/") as server,
    ):
        # The folders of pytest are closed to other users.
        os.chmod(folder, 0o755)
        place = Place(server, Path(folder))
        place.own(found.uid, found.gid)
        with place.listener:
            yield place


@pytest.fixture
async def wire(place):
    async with Wire(place.server.url) as wire:
        await wire.initialize()
        yield wire
