"""The server's own files, which no sandbox may change or, if they are secret, read.

The code of the server runs outside of every sandbox. If it lies in a workspace, for example in the
workspace's `.venv`, it is read-only there all the same, and so is what `keep` names, and the file
of what this user has allowed for good, which widens sandboxes. That file is made, empty, before a
sandbox that could make it. Secrets, such as files with tokens or keys and the socket that the
server listens on, are registered with `hide` when the server starts.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable

from exec_server.sandbox.grant_file import grant_file, make_grant_file

# Directories that an interpreter shares with the rest of the system; only its own parts of them are
# protected.
_SHARED = ("/", "/usr", "/usr/local", "/opt", "/opt/homebrew")
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")

# Each with the functions that make it, or None: one for each server that hides it.
_hidden: dict[bytes, list[Callable[[], object] | None]] = {}
# Each lists files that no sandbox may change.
_kept: list[Callable[[], Iterable[str]]] = [lambda: _existing(str(grant_file()))]


def hide(path: str | bytes | os.PathLike[str], make: Callable[[], object] | None = None) -> None:
    """Keep *path*, a file or a directory, from every sandbox that is planned from now on.

    A sandbox can be kept from a path that exists. If this one may come into being while a sandbox
    runs, *make* makes it before the first sandbox is planned.
    """
    _hidden.setdefault(_resolved(path), []).append(make)


def reveal(path: str | bytes | os.PathLike[str]) -> None:
    """Undo one `hide`, when the server that needed it has ended."""
    hiding = _hidden.get(_resolved(path), [])
    del hiding[-1:]
    if not hiding:
        _hidden.pop(_resolved(path), None)


def _resolved(path: str | bytes | os.PathLike[str]) -> bytes:
    return os.path.realpath(os.path.abspath(os.fsencode(path)))


def hidden() -> tuple[bytes, ...]:
    """The paths that no sandbox may read, free of symbolic links."""
    for make in [make for makes in _hidden.values() for make in makes]:
        if make is not None:
            make()
    return tuple(sorted(_hidden))


def keep(files: Callable[[], Iterable[str]]) -> None:
    """Keep the files that *files* lists unchanged by every sandbox that is planned from now on.

    It is asked for each sandbox. A sandbox that could change such a file ends when it is renamed.
    """
    _kept.append(files)


def protected() -> tuple[bytes, ...]:
    """The paths that no sandbox may change, free of symbolic links."""
    kept = {os.path.realpath(os.fsencode(path)) for files in _kept for path in files()}
    return (*_own_code(), *_own_bytecode(), *sorted(kept))


def trusted() -> tuple[tuple[bytes, Callable[[], object]], ...]:
    """Files that programs outside of sandboxes trust, and that may be missing.

    Each has the function that makes it, without content. It raises OSError.
    """
    path = grant_file()
    return ((os.fsencode(path), functools.partial(make_grant_file, path)),)


def _existing(path: str) -> tuple[str, ...]:
    return (path,) if os.path.exists(path) else ()


def _own_bytecode() -> tuple[bytes, ...]:
    """Where Python keeps the compiled code if PYTHONPYCACHEPREFIX names a place for it."""
    if not sys.pycache_prefix:
        return ()
    place = os.fsencode(os.path.abspath(sys.pycache_prefix))
    found = (os.path.realpath(place + code) for code in _own_code())
    return tuple(sorted(path for path in found if os.path.isdir(path)))


@functools.cache
def _own_code() -> tuple[bytes, ...]:
    """The interpreter and the packages."""
    # Only a server with sandboxes needs this module.
    import sysconfig

    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = {os.path.realpath(prefix) for prefix in prefixes} - set(_SHARED)
    found |= {os.path.realpath(sysconfig.get_path(name)) for name in _LIBRARIES}
    found |= {os.path.realpath(package), os.path.realpath(sys.executable)}
    return tuple(sorted(map(os.fsencode, found - set(_SHARED))))
