"""The one place where a request's paths are let in, with the sandbox it should run in."""

from __future__ import annotations

from exec_server.errors import InvalidRequest
from exec_server.protocol.fs import Sandbox
from exec_server.protocol.paths import PathUri


def admitted(path: PathUri, sandbox: Sandbox) -> bytes:
    """The native path that a request may use. Raises InvalidRequest."""
    if sandbox is not None:
        # Doing more than the client allows is worse than doing nothing.
        raise InvalidRequest("this server cannot enforce a sandbox for files; nothing was done")
    return path.native
