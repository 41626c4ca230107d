"""Clients that objects of other projects hold: by name or URL, connected at the first use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any

import exec_server
from exec_server import sync

# As for the commands: the token for a server that has none configured.
TOKEN_VARIABLE = "EXEC_SERVER_TOKEN"
# How many seconds the end of what was started may take.
_LAST_WORDS = 10.0


class AsyncBox:
    """One client for each event loop that uses it; *server* is a URL, a name, or the default.

    *options* are those of `exec_server.connect`. Call `close` in the loop that is about to end; a
    client that is not closed is disconnected with its loop.
    """

    def __init__(self, server: str | None = None, **options: Any) -> None:
        self.server = server
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock: asyncio.Lock | None = None
        self._block: AbstractAsyncContextManager[exec_server.ExecServerClient] | None = None
        self._client: exec_server.ExecServerClient | None = None

    async def client(self) -> exec_server.ExecServerClient:
        """The client, connected now if it is not yet, or if its session is lost for good."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._lock is None:
            self._loop, self._lock, self._client, self._block = loop, asyncio.Lock(), None, None
        async with self._lock:
            if self._client is None or self._client.state in ("failed", "closed"):
                manager = exec_server.environments()
                token = _token(manager, self.server, self._options)
                block = manager.connect(self.server, **{**self._options, **token})
                self._client = await block.__aenter__()
                self._block = block
            return self._client

    async def close(self) -> None:
        """End everything that was started, and disconnect. Idempotent."""
        client, self._client = self._client, None
        block, self._block = self._block, None
        if client is None or block is None or self._loop is not asyncio.get_running_loop():
            return
        await end_all(client)
        await block.__aexit__(None, None, None)


async def end_all(client: exec_server.ExecServerClient) -> None:
    """End the processes of a session that is about to be closed, as far as that is possible.

    The server would do it, too, but only after the time for which it keeps a session.
    """
    with contextlib.suppress(exec_server.ExecServerError, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS):
            for each in await client.list_processes():
                await client.terminate(each.process_id)


class SyncBox:
    """The same for code without an event loop; any number of threads may use it."""

    def __init__(self, server: str | None = None, **options: Any) -> None:
        self.server = server
        self._options = options
        self._lock = threading.Lock()
        self._blocks = ExitStack()
        self._client: sync.ExecServerClient | None = None

    def client(self) -> sync.ExecServerClient:
        """The client, connected now if it is not yet, or if its session is lost for good."""
        with self._lock:
            if self._client is None or self._client.state in ("failed", "closed"):
                token = _token(exec_server.environments(), self.server, self._options)
                options = {**self._options, **token}
                with ExitStack() as blocks:
                    manager = blocks.enter_context(sync.environments())
                    self._client = blocks.enter_context(manager.connect(self.server, **options))
                    self._blocks = blocks.pop_all()
            return self._client

    def close(self) -> None:
        """End everything that was started, and disconnect. Idempotent."""
        client = self._client
        if client is not None and client._portal.is_here:
            # The collector of garbage may end a box in the thread that the end has to wait for.
            threading.Thread(target=self.close, name="exec-server-close").start()
            return
        with self._lock:
            client, self._client = self._client, None
            if client is not None:
                with contextlib.suppress(exec_server.ExecServerError):
                    for each in client.list_processes():
                        client.terminate(each.process_id)
            self._blocks.close()


# Who runs the server, and the program by which root becomes another user.
_RUNUSER = ("/usr/sbin/runuser", "/sbin/runuser", "/usr/bin/runuser", "/bin/runuser")
_WHO = "id -un; id -u; for p in " + " ".join(_RUNUSER) + "; do [ -x $p ] && echo $p && break; done"


class Users:
    """Commands as another user, which a server that runs as root can start."""

    def __init__(self) -> None:
        self._facts: list[str] | None = None

    async def prefix(
        self, client: exec_server.ExecServerClient, user: str | int | None
    ) -> list[str]:
        """The words before a command that make it run as *user*, a name or a number.

        Raises PermissionError if the server cannot do that.
        """
        if user is None:
            return []
        if self._facts is None:
            self._facts = (await client.run(["/bin/sh", "-c", _WHO])).text().split()
        name, number, *runuser = self._facts
        if str(user) in (name, number):
            return []
        if number != "0" or not runuser:
            raise PermissionError(f"the server runs as {name} and cannot become {user}")
        if str(user).isdigit():
            found = await client.run(["/usr/bin/id", "-un", str(user)], check=True)
            user = found.text().strip()
        return [runuser[0], "-u", str(user), "--"]


def _token(
    manager: exec_server.EnvironmentManager, server: str | None, options: dict[str, Any]
) -> dict[str, str]:
    """The token of the variable, for a server that has no other one."""
    token = os.environ.get(TOKEN_VARIABLE)
    if not token or options.get("token"):
        return {}
    return {} if getattr(manager.resolve(server), "token", None) else {"token": token}
