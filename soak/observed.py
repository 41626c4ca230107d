"""A program of ours that tells its open tasks on a Unix socket: ``observed.py SOCKET WORDS...``.

WORDS are those of `exec-server`, or `server` for a server that forgets sessions and processes
after seconds, so that a soak of minutes sees many of them come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from exec_server.cli.event_loop import in_loop
from exec_server.cli.main import main
from exec_server.limits import DEFAULT_LIMITS
from exec_server.server.serving import run_main

QUICK = msgspec.structs.replace(
    DEFAULT_LIMITS, detached_session_seconds=15.0, closed_process_seconds=3.0
)


# The event loops that were run, which are remembered by `_run`.
loops: list[asyncio.AbstractEventLoop] = []
_run_in_loop = asyncio.Runner.run


def _run(self: asyncio.Runner, *args: Any, **options: Any) -> Any:
    loops.append(self.get_loop())
    return _run_in_loop(self, *args, **options)


def open_tasks() -> Counter[str]:
    """How many tasks of each kind have not ended, in all event loops.

    A thread must not ask the garbage collector for them: tuples that another thread is making fail
    with a SystemError if they are looked at.
    """
    tasks = [task for loop in loops for task in asyncio.all_tasks(loop)]
    return Counter(getattr(task.get_coro(), "__qualname__", "") for task in tasks)


def tell(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        # The asker may have gone meanwhile.
        with connection, contextlib.suppress(OSError):
            connection.sendall(msgspec.json.encode(open_tasks()))


def observe(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    asyncio.Runner.run = _run  # type: ignore[method-assign]
    threading.Thread(target=tell, args=(listener,), daemon=True).start()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    observe(sys.argv[1])
    if sys.argv[2:] == ["server"]:
        in_loop(run_main(limits=QUICK, insecure_no_auth=True))
    else:
        sys.exit(main(sys.argv[2:]))
