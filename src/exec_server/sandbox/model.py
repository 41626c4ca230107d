"""What the parts of the sandbox say to one another."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

Network = Literal["restricted", "enabled"]
Backend = Literal["none", "seccomp", "bubblewrap", "landlock"]

# What a refused start ends with: like the reference's launcher when it fails itself, and when it
# cannot express the policy.
NOT_RUN, NOT_BUILT = 101, 1


class Access(IntEnum):
    """What a rule gives. At equal depth the more careful one wins: deny, then write, then read."""

    READ = 0
    WRITE = 1
    DENY = 2


class Rule(msgspec.Struct, frozen=True, order=True):
    """One entry of a policy, resolved: everything at and below *path*."""

    path: bytes
    access: Access
    # Whether a missing path is no concern; otherwise it must not come to be in a writable place.
    only_existing: bool = False


class Glob(msgspec.Struct, frozen=True):
    """Files to deny that are found when a plan is made; *pattern* is absolute."""

    pattern: str
    # How many characters at its beginning are a directory's name, whatever signs are in it.
    anchor: int = 0


class Policy(msgspec.Struct, frozen=True):
    """What a request may touch, without a look at the file system."""

    # Whether files are restricted at all; without it there are no rules.
    is_managed: bool
    network: Network
    rules: tuple[Rule, ...] = ()
    globs: tuple[Glob, ...] = ()
    glob_depth: int | None = None
    # Whether only a proxy on loopback may be reached (enforceManagedNetwork).
    is_proxied: bool = False
    # Whether the names of `metadata` stay as they are in writable directories.
    protects_metadata: bool = True


class Show(msgspec.Struct, frozen=True):
    """What the host has at *path*, read-only or writable. *path* is free of symbolic links."""

    path: bytes
    is_writable: bool


class Hide(msgspec.Struct, frozen=True):
    """Something empty in the place of *path*.

    A directory with *mode* 0 cannot be entered, with 0o111 only be passed through to *reopened*,
    with 0o555 is empty and read-only. A file is empty, and unreadable with mode 0.
    """

    path: bytes
    is_directory: bool
    mode: int
    # Directories below it that later steps show again, shallow first, and what is no directory.
    reopened: tuple[bytes, ...] = ()
    reopened_files: tuple[bytes, ...] = ()


Step = Show | Hide


class Plan(msgspec.Struct, frozen=True):
    """A policy fitted to the file system as it was a moment ago: what a command will see."""

    policy: Policy
    # Whether the base is the host's own tree, read-only; otherwise it is empty.
    shows_host: bool
    # On top of the base, in this order. When all of the host is writable, that is the first one.
    steps: tuple[Step, ...] = ()
    # Missing names that are mounted over, and so have to be made on the host first: each path,
    # and whether it is a directory.
    placeholders: tuple[tuple[bytes, bool], ...] = ()
    # Symbolic links that an empty base needs before the steps, so that every spelling of a path
    # leads on, such as /bin: each path, free of links itself, and what the link says.
    links: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def needs_namespaces(self) -> bool:
        """Whether files are restricted, so that a filter of system calls is not enough."""
        return self.policy.is_managed


class Unenforceable(Exception):
    """This policy cannot be enforced; nothing may run. Its text is for the client."""
