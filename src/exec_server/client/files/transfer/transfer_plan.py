"""The plan of a transfer: what has to be copied, decided without any I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from exec_server.client.files.transfer.tree import TreeEntry, below, is_same, parent, part_name

# A file up to this size is sent whole, together with others; a larger one alone, in blocks.
SMALL_BYTES = 256 * 1024
# Smaller files are sent whole: asking for checksums would take as long.
DELTA_FROM = 1024 * 1024
# The name of a part, as `part_name` makes it.
_PART = re.compile(rb"(.+)\.[0-9a-f]{8}\.part", re.DOTALL)


class Copy(NamedTuple):
    """One entry that has to be copied."""

    entry: TreeEntry
    # The entry that is at the destination now.
    replaces: TreeEntry | None

    @property
    def is_small(self) -> bool:
        return self.entry.size <= SMALL_BYTES


class Obstacle(NamedTuple):
    """A reason why an entry cannot be copied."""

    path: bytes
    text: str


class TransferPlan(msgspec.Struct):
    """The lists of entries; in each list a directory comes before its content."""

    # All directories, so that their modes and times can be set at the end.
    directories: list[Copy] = []
    files: list[Copy] = []
    links: list[Copy] = []
    kept: list[TreeEntry] = []
    # The kept files whose mode differs.
    modes: list[TreeEntry] = []
    skipped: list[TreeEntry] = []
    obstacles: list[Obstacle] = []
    # What is at the destination and not in the source, the deepest first, if it is to be removed.
    extra: list[TreeEntry] = []

    @property
    def bytes(self) -> int:
        return sum(copy.entry.size for copy in self.files)


def make_plan(source: Iterable[TreeEntry], destination: Mapping[bytes, TreeEntry]) -> TransferPlan:
    """The plan that makes *destination* like *source*, in which parents come first."""
    plan = TransferPlan()
    blocked: set[bytes] = set()
    for entry in source:
        if entry.path and parent(entry.path) in blocked:
            if entry.kind == "directory":
                blocked.add(entry.path)
            continue
        found = destination.get(entry.path)
        text = _obstacle(entry, found)
        if text is not None:
            plan.obstacles.append(Obstacle(entry.path, text))
            if entry.kind == "directory":
                blocked.add(entry.path)
        else:
            _add(plan, entry, found)
    return plan


def is_changed_file(copy: Copy) -> bool:
    """True if a large file replaces a large file, so that parts of it may be the same."""
    found = copy.replaces
    if found is None or found.kind != "file":
        return False
    return min(copy.entry.size, found.size) >= DELTA_FROM


def extraneous(source: Iterable[TreeEntry], destination: Iterable[TreeEntry]) -> list[TreeEntry]:
    """The entries of *destination* that are not in *source*, the deepest first."""
    wanted = {entry.path for entry in source}
    found = [entry for entry in destination if entry.path and entry.path not in wanted]
    return sorted(found, key=lambda entry: (-entry.path.count(b"/"), entry.path))


def stale_parts(plan: TransferPlan, existing: Iterable[bytes]) -> list[bytes]:
    """The paths of parts at the destination that no copy of this plan continues.

    Only names that a copy of one of the files of the plan may have had are taken for parts.
    """
    wanted = {copy.entry.path: copy.entry for copy in plan.files}
    complete = {entry.path for entry in plan.kept}
    found = []
    for path in existing:
        match = _PART.fullmatch(path)
        if match is None or path in wanted or path in complete:
            continue
        entry, directory = wanted.get(match[1]), parent(path)
        name = match[1].rpartition(b"/")[2]
        is_current = entry is not None and below(directory, part_name(entry, name)) == path
        if not is_current and (entry is not None or match[1] in complete):
            found.append(path)
    return found


def stale_siblings(entry: TreeEntry, name: bytes, siblings: Iterable[bytes]) -> list[bytes]:
    """The names beside a single file that are parts of other versions of it.

    *name* is the name of the copy of *entry*, and *siblings* are the names in its directory.
    """
    current = part_name(entry, name)
    found = []
    for sibling in siblings:
        match = _PART.fullmatch(sibling)
        if match is not None and match[1] == name and sibling != current:
            found.append(sibling)
    return found


def _obstacle(entry: TreeEntry, found: TreeEntry | None) -> str | None:
    """The reason why *entry* cannot be copied to where *found* is; None if it can."""
    if found is None or entry.kind == "other":
        return None
    if entry.kind == "directory":
        return None if found.kind == "directory" else "is a directory, and none where it should go"
    if found.kind == "directory":
        return "is a directory where it should go"
    if found.kind == "other":
        return "is a special file where it should go"
    return None


def _add(plan: TransferPlan, entry: TreeEntry, found: TreeEntry | None) -> None:
    if entry.kind == "directory":
        plan.directories.append(Copy(entry, found))
    elif entry.kind == "other":
        plan.skipped.append(entry)
    elif entry.kind == "symlink":
        if found is None or found.kind != "symlink" or found.target != entry.target:
            plan.links.append(Copy(entry, found))
    elif found is not None and is_same(entry, found):
        plan.kept.append(entry)
        if None not in (entry.mode, found.mode) and entry.mode != found.mode:
            plan.modes.append(entry)
    else:
        plan.files.append(Copy(entry, found))
