"""The client for programs without an event loop.

::

    from exec_server import sync

    with sync.connect("ws://127.0.0.1:41181") as box:
        print(box.run(["uname", "-a"]).stdout)

Everything is named, takes and returns what it does in `exec_server`, and waits. One thread in the
background does the work until the block is left; any number of threads may use what is inside.
Callbacks such as *on_state* run in that thread and must not wait themselves. Ctrl-C ends a wait and
cancels what was waited for.

    portal.py    an event loop in a thread of its own, for callers that have none
    sync_api.py  the classes and functions, made from the asynchronous ones by scripts/sync_twin.py
"""

from __future__ import annotations

from exec_server.sync.sync_api import (
    EnvironmentManager,
    ExecServerClient,
    MissingWatch,
    OutputView,
    ReadStream,
    RemoteDiscovery,
    RemoteFiles,
    RemoteHttp,
    RemotePath,
    RemoteProcess,
    StreamedHttpResponse,
    WriteStream,
    connect,
    environments,
    local,
)

__all__ = [
    "EnvironmentManager",
    "ExecServerClient",
    "MissingWatch",
    "OutputView",
    "ReadStream",
    "RemoteDiscovery",
    "RemoteFiles",
    "RemoteHttp",
    "RemotePath",
    "RemoteProcess",
    "StreamedHttpResponse",
    "WriteStream",
    "connect",
    "environments",
    "local",
]
