"""The types that the parts of the sandbox exchange."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

Network = Literal["restricted", "enabled"]
Backend = Literal["none", "seccomp", "bubblewrap", "landlock"]

# The exit codes of a refused start. The reference's launcher ends with the first one when it fails
# itself, and with the second one when it cannot express the policy.
NOT_RUN, NOT_BUILT = 101, 1


class Access(IntEnum):
    """What a rule gives. At equal depth the more careful rule wins: deny, then write, then read."""

    READ = 0
    WRITE = 1
    DENY = 2


class Rule(msgspec.Struct, frozen=True, order=True):
    """One entry of a policy, resolved: it applies to everything at and below *path*."""

    path: bytes
    access: Access
    # True if a missing path does not matter; otherwise it must not be created in a writable place.
    only_existing: bool = False
    # True if a client has granted it later, for a path without symbolic links; and what the policy
    # says about the path itself.
    is_granted: bool = False
    ungranted: Access | None = None


class Glob(msgspec.Struct, frozen=True):
    """Files to deny that are found when a plan is made; *pattern* is absolute."""

    pattern: str
    # This many characters at its beginning are the name of a directory, whatever they contain.
    anchor: int = 0


def depth(path: bytes) -> tuple[int, bytes]:
    """A sort key that puts shallow paths first."""
    return (0 if path == b"/" else path.count(b"/"), path)


class Policy(msgspec.Struct, frozen=True):
    """What a request may touch, made without looking at the file system."""

    # True if files are restricted; otherwise there are no rules.
    is_managed: bool
    network: Network
    rules: tuple[Rule, ...] = ()
    globs: tuple[Glob, ...] = ()
    glob_depth: int | None = None
    # True if only a proxy on the loopback may be reached (enforceManagedNetwork).
    is_proxied: bool = False
    # True if the names of `protected_names` stay unchanged in writable directories.
    protects_metadata: bool = True
    # What it must stay within, wherever its paths lead when a plan is made.
    floor: Floor | None = None


class Floor(msgspec.Struct, frozen=True):
    """A policy that another one must not go beyond; *words* name the rule in a refusal."""

    policy: Policy
    words: str


class Show(msgspec.Struct, frozen=True):
    """The host's *path* is visible, read-only or writable. *path* is free of symbolic links."""

    path: bytes
    is_writable: bool


class Hide(msgspec.Struct, frozen=True):
    """Something empty takes the place of *path*.

    A directory with *mode* 0 cannot be entered; with 0o111 it can only be passed through to
    *reopened*; with 0o555 it is empty and read-only. A file is empty, and unreadable with mode 0.
    """

    path: bytes
    is_directory: bool
    mode: int
    # The directories below it that later steps show again, shallow ones first; then the files.
    reopened: tuple[bytes, ...] = ()
    reopened_files: tuple[bytes, ...] = ()

    @property
    def is_vacant(self) -> bool:
        """True for a directory that may be read and is empty on the host as well, or missing."""
        return self.is_directory and self.mode == 0o555


Step = Show | Hide


class Plan(msgspec.Struct, frozen=True):
    """A policy applied to the file system as it was a moment ago: what a command will see."""

    policy: Policy
    # True if the base is the host's own tree, read-only; otherwise the base is empty.
    shows_host: bool
    # The steps on top of the base, in this order. If the whole host is writable, that is the first.
    steps: tuple[Step, ...] = ()
    # Missing names that are mounted over, and so have to be made on the host first: each path, and
    # True if it is a directory.
    placeholders: tuple[tuple[bytes, bool], ...] = ()
    # Symbolic links that an empty base needs before the steps, so that every spelling of a path
    # works, such as /bin: each path (itself free of links) and the target of the link.
    links: tuple[tuple[bytes, bytes], ...] = ()
    # Directories between a writable place and a step below it. Each is mounted on itself, writable,
    # because a mount point cannot be renamed: otherwise a command could move a directory, and
    # everything that is protected in it, away from its path.
    anchors: tuple[bytes, ...] = ()
    # The steps among these paths hide the server's own secrets, see `own_places`.
    own_secrets: tuple[bytes, ...] = ()
    # Names that the confined program does not make itself; nothing is mounted there.
    left_closed: tuple[bytes, ...] = ()

    @property
    def mounts(self) -> tuple[Step, ...]:
        """The steps and the anchors, in the order in which they are mounted."""
        if not self.anchors:
            return self.steps
        anchors = [Show(path, is_writable=True) for path in self.anchors]
        return tuple(sorted((*self.steps, *anchors), key=lambda step: depth(step.path)))

    def without_placeholders(self) -> Plan:
        """This plan for a program of ours, which keeps the names that are missing closed itself.

        An empty directory with a protected name is left to the program, too: it may be the
        placeholder of a command, and is gone when the command ends.
        """
        closed = {path for path, _ in self.placeholders}
        closed |= {step.path for step in self.steps if isinstance(step, Hide) and step.is_vacant}
        if not closed:
            return self
        return msgspec.structs.replace(
            self,
            steps=tuple(step for step in self.steps if step.path not in closed),
            placeholders=(),
            left_closed=tuple(sorted(closed)),
        )

    @property
    def needs_namespaces(self) -> bool:
        """True if files are restricted, so that a filter of system calls is not enough."""
        return self.policy.is_managed


class Unenforceable(Exception):
    """This policy cannot be enforced; nothing may run. Its text is for the client."""
