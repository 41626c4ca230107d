"""The policies of older clients, and their translation into a profile."""

from __future__ import annotations

import msgspec

from exec_server.protocol.paths import PathUri
from exec_server.protocol.permissions import (
    AtPath,
    Disabled,
    Entry,
    External,
    Managed,
    Minimal,
    Network,
    Permissions,
    ProjectRoots,
    Restricted,
    Root,
    special,
    workspace_entries,
)


class FullReads(msgspec.Struct, frozen=True, tag="full-access"):
    """All files can be read."""


class SomeReads(msgspec.Struct, frozen=True, tag="restricted"):
    """The working directory, the files that programs need, and *readable_roots* can be read."""

    include_platform_defaults: bool = True
    readable_roots: tuple[PathUri, ...] = ()


ReadAccess = FullReads | SomeReads


class DangerFullAccess(msgspec.Struct, frozen=True, tag="danger-full-access"):
    """No sandbox at all."""


class ExternalSandbox(msgspec.Struct, frozen=True, tag="external-sandbox"):
    network_access: Network = "restricted"


class ReadOnly(msgspec.Struct, frozen=True, tag="read-only"):
    network_access: bool = False
    access: ReadAccess = FullReads()


class WorkspaceWrite(msgspec.Struct, frozen=True, tag="workspace-write"):
    writable_roots: tuple[PathUri, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False
    read_only_access: ReadAccess = FullReads()


LegacyPolicy = DangerFullAccess | ExternalSandbox | ReadOnly | WorkspaceWrite


class KindUnrestricted(msgspec.Struct, frozen=True, tag_field="kind", tag="unrestricted"):
    """The policy beside it decides."""


class KindExternal(msgspec.Struct, frozen=True, tag_field="kind", tag="external-sandbox"):
    """The policy beside it decides."""


class KindRestricted(msgspec.Struct, frozen=True, tag_field="kind", tag="restricted"):
    """Entries that replace those of the policy beside it."""

    entries: tuple[Entry, ...] = ()
    glob_scan_max_depth: int | None = None


FileSystemPolicy = KindUnrestricted | KindExternal | KindRestricted


def projected(policy: LegacyPolicy, files: FileSystemPolicy | None = None) -> Permissions:
    """*policy* as a profile; its roots are the client's working directory.

    *files* with restrictions replace the policy's own entries. Others change nothing, so that the
    stricter of the two applies.
    """
    plain = _projected(policy)
    if not isinstance(files, KindRestricted):
        return plain
    network: Network = "enabled" if isinstance(plain, Disabled) else plain.network
    return Managed(Restricted(files.entries, files.glob_scan_max_depth), network)


def _projected(policy: LegacyPolicy) -> Permissions:
    if isinstance(policy, DangerFullAccess):
        return Disabled()
    if isinstance(policy, ExternalSandbox):
        return External(policy.network_access)
    network: Network = "enabled" if policy.network_access else "restricted"
    if isinstance(policy, ReadOnly):
        return Managed(Restricted(_reads(policy.access)), network)
    entries = workspace_entries(
        _reads(policy.read_only_access),
        policy.writable_roots,
        has_tmpdir=not policy.exclude_tmpdir_env_var,
        has_slash_tmp=not policy.exclude_slash_tmp,
    )
    return Managed(Restricted(entries), network)


def _reads(access: ReadAccess) -> tuple[Entry, ...]:
    if isinstance(access, FullReads):
        return (special(Root(), "read"),)
    entries = [special(ProjectRoots(), "read")]
    if access.include_platform_defaults:
        entries.append(special(Minimal(), "read"))
    entries += [Entry(AtPath(root), "read") for root in access.readable_roots]
    return tuple(entries)
