"""Runs all attempts in one sandbox, and remembers what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
from typing import Any, NamedTuple

from exec_server.protocol.sandbox import read_only, workspace_write
from tests.children.escapes.renames import ROOT
from tests.sandbox.escape.stage import World, world
from tests.sandbox.escape.users import User
from tests.support.leaks import children
from tests.support.servers import ServerProcess, start_server
from tests.support.wire import ENV, Finished, Wire

# All attempts of one sandbox together take a few seconds.
_PATIENCE = 60.0


class Results(NamedTuple):
    """What the attempts in one sandbox came to."""

    outcomes: dict[str, str]
    # What enforced it, as the server says.
    backend: str
    # What they changed outside, or made a listener hear.
    changes: list[str]
    # What was left in the workspace, and of the prepared hard link's file.
    workspace: list[str]
    hard_target: str
    stderr: bytes


class Battery:
    """Servers of both users, each started when first needed."""

    def __init__(self, on_exit: contextlib.ExitStack) -> None:
        self._on_exit = on_exit
        self.secret = secrets.token_hex(16)
        self._server = functools.cache(self._start)
        self._outcome = functools.cache(self._run)

    def _start(self, user: User) -> ServerProcess:
        env = {"PYTHONPATH": user.path, "ESCAPE_SECRET": self.secret, "HOME": "/"}
        return self._on_exit.enter_context(start_server(command=user.command, env=env, cwd="/"))

    def results(self, user: User, backend: str | None, policy: str) -> Results:
        """What came of all attempts as *user*, under *policy* on *backend* if there is one."""
        found = self._outcome(user, backend, policy)
        if isinstance(found, Exception):
            raise found
        return found

    def _run(self, user: User, backend: str | None, policy: str) -> Results | Exception:
        try:
            with world(user) as made:
                return asyncio.run(self._tried(user, made, backend, policy))
        except Exception as exc:
            # Remembered as well: what went wrong once is not tried for every attempt.
            return exc

    async def _tried(self, user: User, made: World, backend: str | None, policy: str) -> Results:
        server = self._server(user)
        async with asyncio.timeout(_PATIENCE), Wire(server.url) as wire:
            await wire.initialize()
            await wire.run("warm", ["true"])
            [keeper] = children(server.pid)
            made.tell(server=server.pid, keeper=keeper, secret=self.secret)
            env = {**ENV, "PYTHONPATH": str(made.base / "children"), "PYTHONDONTWRITEBYTECODE": "1"}
            started = await wire.start(
                "p",
                [user.python, "-S", "-m", "escapes", str(made.stage_file)],
                cwd=f"file://{made.workspace}",
                env=env,
                sandbox=sandbox(made, backend, policy),
            )
            done = Finished(await wire.events_until_closed("p"))
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return Results(
            {line["name"]: line["outcome"] for line in lines},
            started.get("sandboxRung", "none"),
            made.changes(),
            sorted(os.listdir(made.workspace)),
            (made.base / "hard-target").read_text(),
            done.stderr,
        )


def sandbox(made: World, backend: str | None, policy: str) -> dict[str, Any] | None:
    """The context that *policy* is on *backend*; None for no sandbox at all."""
    if backend is None:
        return None
    context = read_only()
    if policy != "read-only":
        context = workspace_write(
            [made.workspace, made.workspace / ROOT],
            exclude_tmp=True,
            protect_metadata=backend == "bubblewrap",
            network=policy.endswith("network"),
        )
    wire: dict[str, Any] = context.wire
    return {**wire, "useLegacyLandlock": backend == "landlock"}
