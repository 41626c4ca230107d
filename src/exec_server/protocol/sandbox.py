"""The `sandbox` member of requests, in every dialect.

`SandboxContext` is the member as it was received. Its `intent` is the same in the newest dialect:
a profile, and the directories that its relative paths belong to. `read_only` and
`workspace_write` make the usual contexts::

    client.fs.sandboxed(workspace_write(["/home/u/project"]))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.errors import InvalidParams
from exec_server.protocol.legacy_sandbox import FileSystemPolicy, LegacyPolicy, projected
from exec_server.protocol.paths import PathUri, normalised, to_uri
from exec_server.protocol.permissions import (
    PROTECTED_NAMES,
    AtPath,
    Entry,
    Managed,
    Permissions,
    ProjectRoots,
    Restricted,
    Root,
    special,
    workspace_entries,
)
from exec_server.protocol.sandbox_errors import in_reference_words

WindowsLevel = Literal["disabled", "restricted-token", "elevated", "mxc"]

# A client sends the same few contexts with every call; one has about 1.5 KiB.
_REMEMBERED_CONTEXTS = 256
_REMEMBERED_BYTES = 16 * 1024


class PolicyContext(msgspec.Struct, frozen=True, rename="camel"):
    """Replaces both `cwd` and `workspaceRoots` if it is present."""

    cwd: PathUri | None = None
    workspace_roots: tuple[PathUri, ...] = ()


class SandboxWire(msgspec.Struct, frozen=True, rename="camel"):
    """All members of all dialects; unknown members are ignored."""

    permissions: Permissions | UnsetType = UNSET
    windows_sandbox_level: WindowsLevel = "disabled"
    cwd: PathUri | None = None
    workspace_roots: tuple[PathUri, ...] = ()
    use_legacy_landlock: bool = False
    policy_context: PolicyContext | None = None
    # Ours: False protects no names in writable directories.
    protect_metadata: bool = True
    # These have no effect on this server, but must be well-formed.
    windows_sandbox_proxy_settings_mode: Literal["reconcile", "preserve"] | None = None
    sandbox_override: Literal[
        "noOverride", "escalatedSandboxWithRestrictions", "bypassSandboxFirstAttempt"
    ] = "noOverride"
    user_home_dir: PathUri | None = None
    temporary_directories: tuple[PathUri, ...] | None = None
    # Members of older dialects. Their `additionalPermissions` only grant more, and are ignored.
    sandbox_policy: LegacyPolicy | UnsetType = UNSET
    sandbox_policy_cwd: PathUri | None = None
    file_system_sandbox_policy: FileSystemPolicy | None = None


class Intent(msgspec.Struct, frozen=True):
    """The meaning of a context, the same for all dialects."""

    permissions: Permissions
    # The base of relative paths.
    cwd: PathUri | None = None
    # None in older dialects, where the working directory is the only root.
    workspace_roots: tuple[PathUri, ...] | None = ()
    # True if a working directory was given, also if `policyContext` overrides it.
    has_cwd: bool = False
    use_legacy_landlock: bool = False
    windows_sandbox_level: WindowsLevel = "disabled"
    protects_metadata: bool = True


class SandboxContext:
    """The `sandbox` member of a request; *wire* is its plain JSON.

    Two contexts are equal if their JSON is equal. They are checked when `intent` is first asked
    for, which `decoded` does.
    """

    def __init__(self, wire: Any) -> None:
        self.wire = wire

    @cached_property
    def intent(self) -> Intent:
        """The meaning of this context. Raises InvalidParams if it is malformed."""
        return _intent(self._spelling)

    @property
    def is_short(self) -> bool:
        """True if the context is short enough to be remembered."""
        return len(self._spelling) <= _REMEMBERED_BYTES

    @cached_property
    def _spelling(self) -> bytes:
        return _spelled(self.wire)

    @cached_property
    def _hash(self) -> int:
        return hash(self._spelling)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, SandboxContext) and self._spelling == other._spelling

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"SandboxContext({self.wire!r})"


# The types that a caller of the client may pass; a text is one of the command line's names.
Sandboxed = SandboxContext | dict[str, Any] | str | None


def as_context(sandbox: Sandboxed, *, cwd: str | None = None) -> SandboxContext | None:
    """*sandbox* as a member to send; a dict is sent as it is.

    It may be a name: `read-only`, `workspace-write` or `workspace-write=DIR[:DIR...]`. Without
    directories the last one means *cwd*, a path or URI, to which relative directories are relative,
    too. Raises TypeError.
    """
    if sandbox is None or isinstance(sandbox, SandboxContext):
        return sandbox
    if isinstance(sandbox, dict):
        return SandboxContext(sandbox)
    if isinstance(sandbox, str):
        named = _named(sandbox, cwd)
        if named is not None:
            return named
    raise TypeError(
        'sandbox must be "read-only", "workspace-write[=DIR[:DIR...]]", read_only(), '
        f"workspace_write([...]), a dict or None, not {sandbox!r:.100}"
    )


def _named(name: str, cwd: str | None) -> SandboxContext | None:
    if name == "read-only":
        return read_only()
    kind, equals, rest = name.partition("=")
    folders = rest.split(":") if equals else ["."]
    if kind != "workspace-write" or not all(folders):
        return None
    if cwd is None and not all(folder.startswith("/") for folder in folders):
        raise TypeError(
            f"here {name!r:.100} needs absolute directories, as in workspace_write([...])"
        )
    base = b"" if cwd is None else PathUri(cwd).native
    paths = [folder.encode("utf-8", "surrogateescape") for folder in folders]
    return workspace_write(
        [normalised(path if path.startswith(b"/") else b"%b/%b" % (base, path)) for path in paths]
    )


class OldSandbox(SandboxContext):
    """The context of the first revisions, in which the policy was a member of the request."""


def decoded(wire: Any) -> SandboxContext:
    """The checked context of a request. Recent contexts that are equal are the same object.

    Raises InvalidParams.
    """
    spelling = _spelled(wire)
    if len(spelling) > _REMEMBERED_BYTES:
        return _checked(spelling)
    return _recent(spelling)


def decoded_policy(wire: Any) -> OldSandbox:
    """The context of a request that has a member `sandboxPolicy`. Raises InvalidParams."""
    context = OldSandbox({"sandboxPolicy": wire})
    _ = context.intent
    return context


def _checked(spelling: bytes) -> SandboxContext:
    context = SandboxContext(msgspec.json.decode(spelling))
    _ = context.intent
    return context


_recent = lru_cache(maxsize=_REMEMBERED_CONTEXTS)(_checked)


def _spelled(wire: Any) -> bytes:
    try:
        return _encode(wire)
    except OverflowError as exc:
        raise InvalidParams("invalid number: more than 64 bits") from exc


_encode = msgspec.json.Encoder().encode


def _intent(spelling: bytes) -> Intent:
    try:
        wire = _decoder().decode(spelling)
    except msgspec.ValidationError as exc:
        raise InvalidParams(in_reference_words(str(exc))) from exc
    if wire.permissions is UNSET and wire.sandbox_policy is UNSET:
        raise InvalidParams("missing field `permissions`")
    if not isinstance(wire.permissions, UnsetType):
        return _current(wire, wire.permissions)
    assert not isinstance(wire.sandbox_policy, UnsetType)
    cwd = wire.sandbox_policy_cwd or wire.cwd
    return Intent(
        projected(wire.sandbox_policy, wire.file_system_sandbox_policy),
        cwd,
        wire.workspace_roots or None,
        cwd is not None,
        wire.use_legacy_landlock,
        wire.windows_sandbox_level,
    )


def _current(wire: SandboxWire, permissions: Permissions) -> Intent:
    anchors = wire.policy_context or PolicyContext(wire.cwd, wire.workspace_roots)
    return Intent(
        permissions,
        anchors.cwd,
        anchors.workspace_roots,
        (wire.cwd or anchors.cwd) is not None,
        wire.use_legacy_landlock,
        wire.windows_sandbox_level,
        wire.protect_metadata,
    )


def _path(kind: type, value: Any) -> PathUri:
    if kind is PathUri and type(value) is str:
        return PathUri(value)
    raise msgspec.ValidationError(f"Expected `str`, got `{type(value).__name__}`")


@cache
def _decoder() -> msgspec.json.Decoder[SandboxWire]:
    """The decoder of contexts, made with its first use: it takes a millisecond."""
    return msgspec.json.Decoder(SandboxWire, dec_hook=_path)


@runtime_checkable
class PathLike(Protocol):
    """As `os.PathLike`."""

    def __fspath__(self) -> str | bytes: ...


Path = str | bytes | PathLike


def read_only(*, network: bool = False) -> SandboxContext:
    """Everything can be read and nothing can be written."""
    return _context((special(Root(), "read"),), (), network=network)


def workspace_write(
    roots: Path | Iterable[Path],
    *,
    network: bool = False,
    writable_roots: Path | Iterable[Path] = (),
    exclude_tmp: bool = False,
    protect_metadata: bool = True,
) -> SandboxContext:
    """Everything can be read; *roots*, *writable_roots*, /tmp and TMPDIR can be written.

    `PROTECTED_NAMES` cannot be changed in any writable directory. With ``protect_metadata=False``
    they can; on servers other than ours only in *roots* and *writable_roots*. *exclude_tmp*
    leaves out /tmp and TMPDIR. A single path is one root. The first root is the base of relative
    paths. Raises ValueError for a path that is relative or contains a NUL.
    """
    places = [_uri(root, "roots") for root in _several(roots, "roots")]
    several = _several(writable_roots, "writable_roots")
    others = tuple(_uri(root, "writable_roots") for root in several)
    entries = workspace_entries(
        (special(Root(), "read"),),
        others,
        has_tmpdir=not exclude_tmp,
        has_slash_tmp=not exclude_tmp,
    )
    if not protect_metadata:
        kept = tuple(entry for entry in entries if entry.missing_path_behavior is None)
        entries = (*kept, *_lifted(others))
    context = _context(entries, tuple(place.text for place in places), network=network)
    if not protect_metadata:
        # Other servers read only the entries.
        context.wire["protectMetadata"] = False
    return context


def _lifted(others: tuple[PathUri, ...]) -> Iterator[Entry]:
    """The entries that make the protected names in workspace roots and *others* writable.

    A directory of such a name is then itself a writable directory with protected names.
    """
    inner = (f"{name}/{each}" for name in PROTECTED_NAMES for each in PROTECTED_NAMES)
    for path in (*PROTECTED_NAMES, *inner):
        yield special(ProjectRoots(path), "write")
        for root in others:
            yield Entry(AtPath(PathUri(f"{root.text.rstrip('/')}/{path}")), "write")


def _several(paths: Path | Iterable[Path], name: str) -> Iterable[Path]:
    """The paths of parameter *name*, which may be a single one."""
    if isinstance(paths, str | bytes | PathLike):
        return (paths,)
    if not isinstance(paths, Iterable):
        raise TypeError(f"{name} must be a path or several, not {type(paths).__name__}")
    return paths


def _uri(path: Path, name: str) -> PathUri:
    if not isinstance(path, str | bytes | PathLike):
        raise TypeError(f"{name} must be paths, not {type(path).__name__}")
    return PathUri(to_uri(path.__fspath__() if isinstance(path, PathLike) else path))


def _context(
    entries: tuple[Entry, ...], roots: tuple[str, ...], *, network: bool
) -> SandboxContext:
    permissions = Managed(Restricted(entries), "enabled" if network else "restricted")
    encoded = msgspec.json.encode(permissions, enc_hook=lambda path: path.text)
    wire: dict[str, Any] = {
        "permissions": msgspec.json.decode(encoded),
        "windowsSandboxLevel": "disabled",
    }
    if roots:
        wire.update(cwd=roots[0], workspaceRoots=list(roots))
    return SandboxContext(wire)
