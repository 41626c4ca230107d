"""A door that stays open for a while, so that the next ssh connection need not start Python's half.

The first ProxyCommand of a host goes on in the background, and serves later connections to the same
host as well. It listens on a Unix socket in a private directory, and leaves when it was idle for a
while.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from exec_server.ssh_door.open_doors import BUSY, WELCOME

logger = logging.getLogger(__name__)

# More connections at a time share too little of one processor: the next one starts its own door.
_MOST_CONNECTIONS = 8

# After a lack of descriptors it tries again so much later.
_PAUSE_SECONDS = 0.5

ServeOne = Callable[[socket.socket], Awaitable[None]]


class Doorkeeper:
    """Serves one connection, and those that come until it was idle for *linger* seconds."""

    def __init__(self, path: Path, serve_one: ServeOne, *, linger: float) -> None:
        self._path = path
        self._serve_one = serve_one
        self._linger = linger
        self._serving: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def run(self, first: socket.socket) -> None:
        """Return when all connections have ended and no other one has come for a while."""
        with contextlib.ExitStack() as stack:
            listener = self._listen(stack) if self._linger else None
            async with asyncio.TaskGroup() as tasks:
                self._admit(tasks, first)
                accepting = None
                if listener is not None:
                    accepting = tasks.create_task(self._accept(tasks, listener))
                while self._serving:
                    await asyncio.wait(self._serving)
                    if accepting is not None and not self._serving:
                        await self._idle()
                if accepting is not None:
                    accepting.cancel()

    async def _idle(self) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                await self._changed.wait()

    def _admit(self, tasks: asyncio.TaskGroup, sock: socket.socket) -> None:
        task = tasks.create_task(self._serve(sock))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        self._changed.set()

    async def _serve(self, sock: socket.socket) -> None:
        try:
            await self._serve_one(sock)
        except Exception:
            # The other connections go on.
            logger.exception("an ssh connection failed")
            sock.close()

    async def _accept(self, tasks: asyncio.TaskGroup, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as exc:
                # There are no descriptors left, for example. The connections that there are go on.
                logger.warning("a connection could not be accepted: %s", exc)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            is_welcome = len(self._serving) < _MOST_CONNECTIONS
            with contextlib.suppress(OSError):
                sock.send(WELCOME if is_welcome else BUSY)
            if is_welcome:
                self._admit(tasks, sock)
            else:
                sock.close()

    def _listen(self, stack: contextlib.ExitStack) -> socket.socket | None:
        """A listener until *stack* ends; None if another door listens, or it is not possible."""
        try:
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            # Only the holder of the lock may remove a socket that is there.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path.unlink(missing_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            # Whatever the umask and the mode of the directory are, it is for this user alone.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(self._path))
            stack.callback(self._path.unlink, missing_ok=True)
            listener.listen()
            listener.setblocking(False)
        except OSError as exc:
            logger.debug("no door stays open at %s: %s", self._path, exc)
            return None
        return listener
