"""A registry in this process, and machines that have nothing but a home directory."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exec_server.remote.known_executors import KnownExecutors
from tests.hub.conftest import Visitor, clock, visit, visitor
from tests.support.cli import Finished, finished, line, running

__all__ = ["Machine", "Visitor", "clock", "visit", "visitor"]


class Machine:
    """Commands that run here have a home directory of their own, and no token."""

    # The URL that it serves, if it serves.
    url: str

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state = home / "state" / "exec-server"
        self.known = KnownExecutors(self.state / "known_executors")
        self.env = {
            **os.environ,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "CODEX_HOME": str(home / "codex"),
        }
        for name in ("EXEC_SERVER_REGISTRY_TOKEN", "EXEC_SERVER_PIN", "EXEC_SERVER_TOKEN"):
            self.env.pop(name, None)
        (home / "codex").mkdir(parents=True)

    async def run(self, *words: str) -> Finished:
        return await finished(*words, env=self.env)

    def running(self, *words: str) -> Any:
        return running(*words, env=self.env)

    def file(self, name: str, text: str) -> str:
        """Write a file in the home directory; its path."""
        (self.home / name).write_text(text)
        return str(self.home / name)

    @asynccontextmanager
    async def offering(self, url: str, *words: str) -> AsyncIterator[Any]:
        """A command that waits until its code is typed, and what it has printed."""
        async with self.running("pair", "--registry", url, "-o", "json", *words) as process:
            yield process, json.loads(await line(process))


@pytest.fixture
def big(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "big")


@pytest.fixture
def laptop(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "laptop")
