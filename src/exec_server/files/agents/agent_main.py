"""The agent process: it reads its request from stdin, and does one search or one watch.

It is started as `python -I -S`, confined like a command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from exec_server.files.confined.interpreter import HIDDEN
from exec_server.own_interpreter import hide

# The longest request; the server's own limits are lower.
_REQUEST_BYTES = 16 * 1024 * 1024


def main() -> None:
    if os.environ.get(HIDDEN):
        hide()
    work = sys.argv[1]
    request = _read_request()
    # The server keeps the pipe open as long as it wants an answer.
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if work == "search":
        from exec_server.files.agents.search_work import search

        search(request)
    else:
        from exec_server.files.agents.watch_work import watch

        watch(request)


def _read_request() -> dict[str, Any]:
    data = bytearray()
    while not data.endswith(b"\n"):
        piece = os.read(0, 65536)
        if not piece or len(data) > _REQUEST_BYTES:
            os._exit(1)
        data += piece
    request: dict[str, Any] = json.loads(data)
    return request


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # Programs that it has started are in its group.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
