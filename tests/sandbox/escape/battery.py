"""Run all attempts in one sandbox, and remember the results."""

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
    """The results of the attempts in one sandbox."""

    outcomes: dict[str, str]
    # The backend that enforced it, as the server says.
    backend: str
    # What the attempts changed outside, or sent to a listener.
    changes: list[str]
    # What was left in the workspace, and in the file of the prepared hard link.
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

    def results(
        self, user: User, backend: str | None, policy: str, *, is_supervised: bool = False
    ) -> Results:
        """The results of all attempts as *user*, under *policy*, on *backend* if there is one."""
        found = self._outcome(user, backend, policy, is_supervised)
        if isinstance(found, Exception):
            raise found
        return found

    def _run(
        self, user: User, backend: str | None, policy: str, is_supervised: bool
    ) -> Results | Exception:
        try:
            with world(user) as made:
                return asyncio.run(self._tried(user, made, backend, policy, is_supervised))
        except Exception as exc:
            # Failures are remembered as well, so that one is not repeated for every attempt.
            return exc

    async def _tried(
        self, user: User, made: World, backend: str | None, policy: str, is_supervised: bool
    ) -> Results:
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
                **({"denials": True} if is_supervised else {}),
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
    """The sandbox object for *policy* on *backend*; None for no sandbox at all."""
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
