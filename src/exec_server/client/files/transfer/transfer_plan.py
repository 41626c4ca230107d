"""The plan of a transfer: what has to be copied, decided without any I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from exec_server.client.files.transfer.tree import TreeEntry, is_same, parent

# A file up to this size is sent whole, together with others; a larger one alone, in blocks.
SMALL_BYTES = 256 * 1024


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
