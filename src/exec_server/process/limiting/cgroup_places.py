"""Where this process's own control groups are, from the texts of /proc. Pure.

The keeper loads this file by its path; only the standard library is available there.
"""

from __future__ import annotations

import re

# The controllers that limits need.
WANTED = frozenset(("memory", "pids", "cpu", "cpuacct"))


class GroupPlace:
    """The directory of the group that this process is in, in one hierarchy."""

    __slots__ = ("controllers", "path", "version")

    def __init__(self, version: int, path: str, controllers: frozenset[str]) -> None:
        self.version = version
        self.path = path
        # Of version 1: what the hierarchy has. Of version 2 the directory itself tells.
        self.controllers = controllers


def located(mountinfo: str, own: str) -> list[GroupPlace]:
    """The own groups that can be reached; the texts are /proc/self/mountinfo and .../cgroup."""
    groups = dict(_own_groups(own))
    places: list[GroupPlace] = []
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        words, facts = fields.split(), rest.split()
        if len(words) < 5 or len(facts) < 3 or facts[0] not in ("cgroup", "cgroup2"):
            continue
        has = frozenset(facts[-1].split(",")) & WANTED if facts[0] == "cgroup" else frozenset()
        version = 1 if facts[0] == "cgroup" else 2
        key = next((name for name in has if name in groups), None) if version == 1 else ""
        if key is None or key not in groups:
            continue
        path = _within(groups[key], _plain(words[3]), _plain(words[4]))
        if path is not None:
            places.append(GroupPlace(version, path, has))
    return places


def _own_groups(own: str) -> list[tuple[str, str]]:
    """The path of the own group by each controller; that of version 2 has no name."""
    found: list[tuple[str, str]] = []
    for line in own.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found += [(name, parts[2]) for name in parts[1].split(",")]
    return found


def _within(group: str, root: str, mount_point: str) -> str | None:
    """The directory of *group* where the part *root* of its hierarchy is mounted."""
    if ".." in group.split("/"):
        # It is outside of the control group namespace.
        return None
    root = root.rstrip("/")
    if group != root and not group.startswith(f"{root}/"):
        return None
    return mount_point.rstrip("/") + group[len(root) :].rstrip("/")


def _plain(word: str) -> str:
    """A path of mountinfo, which writes spaces and the like in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)
