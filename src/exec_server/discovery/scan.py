"""Walks one capability root and reads its small files, within limits."""

from __future__ import annotations

import os
import stat
from collections import deque
from typing import NamedTuple

from exec_server.limits import Limits
from exec_server.protocol.environment import CapabilityFile
from exec_server.protocol.paths import to_uri

# The names are in the order of their priority.
MANIFEST_NAMES = (
    b".codex-plugin/plugin.json",
    b".claude-plugin/plugin.json",
    b".cursor-plugin/plugin.json",
)
SKILL_NAME = b"SKILL.md"
SKILL_METADATA = b"agents/openai.yaml"


class FoundCapabilities(NamedTuple):
    """Native paths below a root."""

    skills: list[bytes]
    # The directories with a manifest of any of the names.
    plugins: list[bytes]
    is_complete: bool


def walk(root: bytes, limits: Limits) -> FoundCapabilities:
    """The skills and plugins below *root*, up to a limited depth.

    Links to directories are followed, and each directory is entered once. A skill's file that is a
    link does not count.
    """
    skills: list[bytes] = []
    plugins: list[bytes] = []
    seen: set[tuple[int, int]] = set()
    waiting = deque([(root, 0)])
    entries = 0
    while waiting:
        directory, depth = waiting.popleft()
        listed = _entries(directory, seen)
        if listed is None:
            continue
        if len(seen) > limits.capability_directories:
            return FoundCapabilities(skills, plugins, False)
        for entry in listed:
            entries += 1
            if entries > limits.capability_entries:
                return FoundCapabilities(skills, plugins, False)
            if entry.is_dir():
                if depth < limits.capability_depth:
                    waiting.append((entry.path, depth + 1))
            elif entry.name == SKILL_NAME and entry.is_file(follow_symlinks=False):
                skills.append(entry.path)
        if any(_is_regular(os.path.join(directory, name)) for name in MANIFEST_NAMES):
            plugins.append(directory)
    return FoundCapabilities(skills, plugins, True)


def _entries(directory: bytes, seen: set[tuple[int, int]]) -> list[os.DirEntry[bytes]] | None:
    """The entries of a directory by name; None if it was seen before or cannot be read."""
    try:
        status = os.stat(directory)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            return None
        seen.add(identity)
        with os.scandir(directory) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return None


def _is_regular(path: bytes) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


class BoundedReader:
    """Reads files of one root up to a total size, and collects warnings."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.capability_root_bytes
        self.warnings: list[str] = []

    def read(self, path: bytes) -> CapabilityFile | None:
        """A file; None if it does not exist, and None with a warning if it cannot be used."""
        uri = to_uri(path)
        try:
            data = self._bytes_of(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            self._warn(f"failed to read capability file {uri}: {exc.strerror}")
            return None
        limit = self._limits.capability_file_bytes
        if data is None:
            return None
        if len(data) > limit:
            self._warn(f"capability file {uri} exceeds the {limit}-byte limit")
            return None
        if len(data) > self._left:
            total = self._limits.capability_root_bytes
            self._warn(f"capability root bundle exceeds the {total}-byte limit")
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as exc:
            length = exc.end - exc.start
            self._warn(
                f"capability file {uri} is not UTF-8: "
                f"invalid utf-8 sequence of {length} bytes from index {exc.start}"
            )
            return None
        self._left -= len(data)
        return CapabilityFile(uri, text)

    def _bytes_of(self, path: bytes) -> bytes | None:
        # Opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return file.read(self._limits.capability_file_bytes + 1)

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
