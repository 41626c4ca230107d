"""Patterns in remote paths: `NAME:src/*.py`, as a shell there would read them."""

from __future__ import annotations

import re

from exec_server.cli.files.targets import Servers, Target
from exec_server.errors import NotFound, RpcError

_WILD = re.compile(r"[*?\[]")


async def expand_globs(servers: Servers, target: Target) -> list[Target]:
    """The files that *target* means: itself, or those that its pattern matches, in order.

    Names that begin with a dot match only a pattern that does, and a file that has the very name of
    the pattern counts before all others. Raises NotFound if nothing matches.
    """
    if not target.is_remote or not _WILD.search(target.path):
        return [target]
    files = await servers.files(target)
    try:
        if await files.exists(target.path):
            return [target]
    except RpcError:
        # The path cannot be one, for example because a part of it is too long.
        pass
    base, pattern = _split(target.path)
    matches = files.path(base or ".").glob(pattern)
    found = [
        Target(target.url, str(path))
        async for path in matches
        if not _is_hidden(str(path), pattern)
    ]
    if not found:
        raise NotFound(f"{target}: no file matches")
    return found


def _split(path: str) -> tuple[str, str]:
    """The part of *path* before the first pattern, and the rest."""
    names = path.rstrip("/").split("/")
    first = next(index for index, name in enumerate(names) if _WILD.search(name))
    base = "/".join(names[:first])
    if first and not base:
        base = "/"
    return base, "/".join(names[first:])


def _is_hidden(path: str, pattern: str) -> bool:
    """True if a name begins with a dot that its part of the pattern does not have."""
    wanted = pattern.split("/")
    if "**" in wanted:
        return False
    names = path.split("/")[-len(wanted) :]
    return any(
        name.startswith(".") and not each.startswith(".")
        for name, each in zip(names, wanted, strict=True)
    )
