"""The profile inside a `sandbox` member: what a sandbox allows."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from exec_server.protocol.numbers import fits_u64
from exec_server.protocol.paths import PathUri

Network = Literal["restricted", "enabled"]
Access = Literal["read", "write", "deny"]

# Entries of a writable directory that stay protected, also if they do not exist.
PROTECTED_NAMES = (".git", ".agents", ".codex", ".aws")


class Root(msgspec.Struct, frozen=True, tag_field="kind", tag="root"):
    """The whole file system."""


class Minimal(msgspec.Struct, frozen=True, tag_field="kind", tag="minimal"):
    """The files that every program needs to run."""


class ProjectRoots(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="project_roots"
):
    """Each root of the workspace, or a path below each."""

    subpath: str | None = None


class CurrentDirectory(ProjectRoots, frozen=True, tag="current_working_directory"):
    """An older name of `ProjectRoots`."""


class Tmpdir(msgspec.Struct, frozen=True, tag_field="kind", tag="tmpdir"):
    """The directory that the variable TMPDIR names."""


class SlashTmp(msgspec.Struct, frozen=True, tag_field="kind", tag="slash_tmp"):
    """The directory /tmp."""


class Unknown(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="unknown"):
    """A path kind of a newer client; it grants nothing."""

    path: str
    subpath: str | None = None


Special = Root | Minimal | ProjectRoots | CurrentDirectory | Tmpdir | SlashTmp | Unknown


class AtPath(msgspec.Struct, frozen=True, tag="path"):
    path: PathUri


class AtGlob(msgspec.Struct, frozen=True, tag="glob_pattern"):
    pattern: str


class AtSpecial(msgspec.Struct, frozen=True, tag="special"):
    value: Special


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    path: AtPath | AtGlob | AtSpecial
    access: Literal["read", "write", "deny", "none"]
    # This matters on other platforms; here it changes nothing for a missing path.
    missing_path_behavior: Literal["skip"] | None = None

    @property
    def kind(self) -> Access:
        """The access; `none` is another name for `deny`."""
        return "deny" if self.access == "none" else self.access


class Unrestricted(msgspec.Struct, frozen=True, tag="unrestricted"):
    """Every file."""


class Restricted(msgspec.Struct, frozen=True, omit_defaults=True, tag="restricted"):
    """Only the files that the entries name."""

    entries: tuple[Entry, ...]
    glob_scan_max_depth: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.glob_scan_max_depth):
            raise ValueError("invalid number: more than 64 bits")


class Disabled(msgspec.Struct, frozen=True, tag="disabled"):
    """No sandbox at all."""


class External(msgspec.Struct, frozen=True, tag="external"):
    """Another program restricts the access to files."""

    network: Network


class Managed(msgspec.Struct, frozen=True, tag="managed"):
    file_system: Unrestricted | Restricted
    network: Network


Permissions = Disabled | External | Managed


def special(value: Special, access: Access) -> Entry:
    """An entry for a special path."""
    return Entry(AtSpecial(value), access)


def protected(path: AtPath | AtSpecial) -> Entry:
    """The entry that protects one of `PROTECTED_NAMES`."""
    return Entry(path, "read", "skip")


def workspace_entries(
    reads: tuple[Entry, ...],
    writable_roots: tuple[PathUri, ...],
    *,
    has_tmpdir: bool = True,
    has_slash_tmp: bool = True,
) -> tuple[Entry, ...]:
    """The entries of a writable workspace, after *reads*."""
    writes = [special(ProjectRoots(), "write")]
    if has_slash_tmp:
        writes.append(special(SlashTmp(), "write"))
    if has_tmpdir:
        writes.append(special(Tmpdir(), "write"))
    writes += [Entry(AtPath(root), "write") for root in writable_roots]
    names = [protected(AtSpecial(ProjectRoots(name))) for name in PROTECTED_NAMES]
    return (*reads, *writes, *names)
