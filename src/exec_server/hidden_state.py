"""The state directory of this user's programs, which no sandbox may read or make."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from exec_server.remote.state_dir import state_home
from exec_server.sandbox.own_places import hide, reveal


def hide_state() -> Path:
    """Hide the directory of detached sessions, keys, tokens and principals from sandboxes.

    It is made with the first sandbox: a command that made it could put there what later programs
    trust. The result is what `reveal` takes.
    """
    folder = state_home()
    hide(folder, partial(_make_folder, folder))
    return folder


@contextlib.contextmanager
def hidden_state() -> Iterator[None]:
    """The same as long as a server in this process is there."""
    folder = hide_state()
    try:
        yield
    finally:
        reveal(folder)


def _make_folder(folder: Path) -> None:
    # Where this user cannot make it, the user's commands cannot either. A home that does not exist,
    # as that of a system's user, is not made.
    with contextlib.suppress(OSError):
        if Path.home().is_dir() or folder.parent.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
