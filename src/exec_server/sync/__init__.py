"""The client for programs without an event loop.

::

    from exec_server import sync

    with sync.connect("ws://127.0.0.1:41181") as box:
        print(box.run(["uname", "-a"]).stdout)

Every class and function has the name, parameters and results that it has in `exec_server`, and
waits. One background thread does the work until the block is left; any number of threads may use
the client. Callbacks such as *on_state* run in that thread and must not wait themselves. Ctrl-C
ends a wait and cancels the work that it waits for.

`sync.open` opens a client without a block, also where an event loop runs already, as in a notebook.

    sync_api.py  the classes and functions, made by `scripts/sync_twin.py`
    portal.py    the event loop in its thread
"""

from __future__ import annotations

from exec_server.sync.sync_api import (
    EnvironmentManager,
    ExecServerClient,
    FileSearch,
    FileWatch,
    MissingWatch,
    OutputView,
    ReadStream,
    RemoteDiscovery,
    RemoteFiles,
    RemoteHttp,
    RemotePath,
    RemoteProcess,
    StreamedHttpResponse,
    WatchedProcess,
    WriteStream,
    connect,
    environments,
    local,
)
from exec_server.sync.sync_api import open as open

__all__ = [
    "EnvironmentManager",
    "ExecServerClient",
    "FileSearch",
    "FileWatch",
    "MissingWatch",
    "OutputView",
    "ReadStream",
    "RemoteDiscovery",
    "RemoteFiles",
    "RemoteHttp",
    "RemotePath",
    "RemoteProcess",
    "StreamedHttpResponse",
    "WatchedProcess",
    "WriteStream",
    "connect",
    "environments",
    "local",
]
