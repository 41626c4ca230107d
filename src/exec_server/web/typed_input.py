"""What tabs type into a process: in order, bounded, and never in the way of output."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from exec_server.client.process.remote_process import RemoteProcess
from exec_server.client.process.watched_process import WatchedProcess
from exec_server.errors import ControlLost, ExecServerError

logger = logging.getLogger(__name__)

# A long paste fits; more is refused, because the program does not read it.
MAX_WAITING = 8 * 1024 * 1024


class TypedInput:
    """Writes to a process what was put in, piece by piece."""

    def __init__(self, process: RemoteProcess | WatchedProcess) -> None:
        self._process = process
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._some = asyncio.Event()

    def put(self, data: bytes) -> bool:
        """Type *data* after what was typed; False if too much waits already."""
        if self._size + len(data) > MAX_WAITING:
            return False
        self._waiting.append(data)
        self._size += len(data)
        self._some.set()
        return True

    async def pass_on(self) -> None:
        """Write until the process takes no more input."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                # What was typed in the meantime goes in one message.
                data = b"".join(self._waiting)
                self._waiting.clear()
                try:
                    await self._process.write(data)
                except ControlLost as exc:
                    # Another participant drives; what was typed for the old screen is dropped.
                    logger.debug("the input was taken: %s", exc)
                except ExecServerError as exc:
                    logger.debug("the process takes no input: %s", exc)
                    return
                finally:
                    self._size -= len(data)
