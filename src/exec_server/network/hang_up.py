"""Notice that a process has closed its connection to the proxy while nothing is read from it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from exec_server.network.blocked import Attempt, Verdict
from exec_server.network.decider import AllowedAttempt, Decider


def watch_end(sock: socket.socket, on_end: Callable[[], object]) -> Callable[[], None]:
    """Call *on_end* when the other side closes *sock*; the returned function ends the watch.

    Use it only while nothing else reads *sock*. Data that arrives ends the watch as well: an end
    behind that data is not seen.
    """
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if sock.fileno() >= 0:
            loop.remove_reader(sock)

    def look() -> None:
        stop()
        with contextlib.suppress(BlockingIOError):
            try:
                has_ended = not sock.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                has_ended = True
            if has_ended:
                on_end()

    loop.add_reader(sock, look)
    return stop


async def decide_unless_gone(
    decider: Decider, attempt: Attempt, sock: socket.socket
) -> AllowedAttempt | Verdict | None:
    """What *decider* says to *attempt*; None when the process closes *sock* before that."""
    deciding = asyncio.ensure_future(decider.decide(attempt))
    stop_watching = watch_end(sock, deciding.cancel)
    try:
        await asyncio.wait({deciding})
    finally:
        stop_watching()
        deciding.cancel()
    return None if deciding.cancelled() else deciding.result()
