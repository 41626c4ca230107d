"""MCP on standard input and output, until the client leaves or a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from mcp.server import MCPServer

_BLOCK = 64 * 1024


async def serve_stdio(server: MCPServer) -> None:
    """Serve until the input ends, or SIGINT or SIGTERM comes; a second signal ends the program.

    The SDK reads its input in a thread, and waits for that thread when it is cancelled: until the
    client writes something. So it gets an input that we can end.
    """
    loop = asyncio.get_running_loop()
    with _interruptible_input() as end_input:

        def stop() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            end_input()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        await server.run_stdio_async()


@contextlib.contextmanager
def _interruptible_input() -> Iterator[Callable[[], None]]:
    """Put a socket in the place of descriptor 0; what is yielded ends the input."""
    client = os.dup(0)
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), 0)
    theirs.close()

    def pump() -> None:
        # The end of the program does not wait for a daemon, which may be reading for ever.
        with contextlib.suppress(OSError):
            while data := os.read(client, _BLOCK):
                ours.sendall(data)
        end()

    def end() -> None:
        with contextlib.suppress(OSError):
            ours.shutdown(socket.SHUT_WR)

    threading.Thread(target=pump, name="standard input", daemon=True).start()
    yield end
