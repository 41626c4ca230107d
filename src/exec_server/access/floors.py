"""What follows from floors alone: their words, their contradictions, and limits below them."""

from __future__ import annotations

from msgspec import structs

from exec_server.access.principal import Floors, SandboxFloor
from exec_server.protocol.resources import ResourceLimits


def sandbox_words(floor: SandboxFloor) -> str:
    """The floor as the command line spells it, such as ``workspace-write=/srv/app``."""
    folders = f"={':'.join(floor.folders)}" if floor.folders else ""
    return f"{floor.kind}{folders}{' with network' if floor.network else ''}"


def problems(floors: Floors) -> list[str]:
    """Why commands under *floors* could not be held, one sentence each; none if they can."""
    found = []
    if floors.sandbox is None:
        if floors.roots:
            found.append("roots without a sandbox floor hold no command: it can open any path")
        if floors.hosts is not None:
            found.append("hosts without a sandbox floor hold no command: it can reach any host")
    found += [
        f"{what} {path!r} is not an absolute path"
        for what, paths in (("root", floors.roots), ("folder", _folders(floors)))
        for path in paths
        if not path.startswith("/")
    ]
    return found


def _folders(floors: Floors) -> tuple[str, ...]:
    return () if floors.sandbox is None else floors.sandbox.folders


def lowest(asked: ResourceLimits | None, floor: ResourceLimits | None) -> ResourceLimits | None:
    """The lower one of each limit; a limit that only one of both has is that one's."""
    if asked is None or floor is None:
        return asked or floor
    return structs.replace(
        asked,
        require=asked.require or floor.require,
        **{
            name: _lower(getattr(asked, name), getattr(floor, name))
            for name in ResourceLimits.__struct_fields__
            if name != "require"
        },
    )


def _lower(asked: float | None, floor: float | None) -> float | None:
    if asked is None or floor is None:
        return floor if asked is None else asked
    return min(asked, floor)
