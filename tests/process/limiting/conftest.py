"""Servers of root and of an unprivileged user, for the tests of limits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from exec_server.client_urls import ExecServerClient, connect
from tests.sandbox.escape.users import User, user
from tests.support.servers import ServerProcess, start_server


class Limited(NamedTuple):
    """A server of *user*, its log, and a directory that this user can write to."""

    server: ServerProcess
    user: User
    log: Path
    place: Path


@pytest.fixture(scope="module", params=["root", "nobody"])
def limited(request: pytest.FixtureRequest) -> Iterator[Limited]:
    account = user(request.param)
    if account is None:
        pytest.skip(f"no server of {request.param} can be run here")
    # Another run of pytest may close the directory above its own to other users at any time.
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        place = Path(folder)
        os.chown(place, account.uid, account.gid)
        log = place / "server.log"
        options = ("--listen", "ws://127.0.0.1:0", "--log-level", "warning")
        started = start_server(
            *options,
            command=account.command,
            env={"PYTHONPATH": account.path},
            cwd="/",
            log=log,
        )
        with started as server:
            yield Limited(server, account, log, place)


@pytest.fixture
async def client(limited: Limited) -> AsyncIterator[ExecServerClient]:
    async with connect(limited.server.url) as opened:
        yield opened
