"""What a start has failed at: the program, or its working directory."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import TYPE_CHECKING

from exec_server.errors import ExecServerError, InternalError, NotFound, RpcError
from exec_server.protocol.paths import PathUri

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession
    from exec_server.errors import StartPart
    from exec_server.protocol.process import StartParams

# Errors of a program or of its directory.
_OF_A_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)


async def named(session: ClientSession, error: InternalError, params: StartParams) -> InternalError:
    """*error* with the name of what the server could not start, or not start it in."""
    cwd = PathUri(params.cwd)
    if error.kind is None and error.errno in _OF_A_PATH:
        error.kind = await _culprit(session, error, cwd)
    if error.kind == "cwd":
        directory = os.fsdecode(cwd.native)
        return error.about(f"cwd {directory!r}", path=directory)
    program = params.argv[0] if params.argv else None
    return error.about("argv" if program is None else repr(program), path=program)


async def _culprit(session: ClientSession, error: InternalError, cwd: PathUri) -> StartPart:
    """What the server could not start: the program, or the program in its directory.

    Without `errorDetails` the answer has the number of the error alone, and it is the same for
    both. In a directory that may not be searched, no name can be looked for.
    """
    from exec_server.client.files.file_methods import is_directory

    inside = PathUri(f"{cwd.text}/{uuid.uuid4()}")
    try:
        if not await is_directory(session, cwd):
            return "cwd"
        if error.errno == errno.EACCES:
            with contextlib.suppress(NotFound):
                await is_directory(session, inside)
    except RpcError as exc:
        # It is missing, or the way to it leads over a file, in a circle or where none may go.
        return "cwd" if exc.errno in _OF_A_PATH else "program"
    except ExecServerError:
        return "program"
    return "program"
