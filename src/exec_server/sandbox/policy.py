"""Resolve a request's sandbox context to a Policy, without looking at the file system.

A policy is in normal form: its rules are sorted, one for each path. So contexts that say the same
in another order or spelling resolve to equal policies. A policy that allows to write everything is
not managed and has no rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import structs

from exec_server.errors import InvalidParams, InvalidRequest, RpcError
from exec_server.protocol.paths import PathUri, normalised
from exec_server.protocol.permissions import (
    AtGlob,
    AtPath,
    AtSpecial,
    Disabled,
    Entry,
    External,
    Minimal,
    ProjectRoots,
    Restricted,
    Root,
    SlashTmp,
    Tmpdir,
    Unrestricted,
)
from exec_server.protocol.sandbox import Intent, SandboxContext
from exec_server.sandbox.model import Access, Glob, Policy, Rule

# What programs need to run. The special path `minimal` stands for those of them that exist.
MINIMAL_READS = (
    b"/bin",
    b"/sbin",
    b"/usr",
    b"/etc",
    b"/lib",
    b"/lib64",
    b"/nix/store",
    b"/run/current-system/sw",
)

_ACCESS = {"read": Access.READ, "write": Access.WRITE, "deny": Access.DENY}
_IN_PROJECT_ROOTS = "codex-project-roots://"
_NO_CWD = "file system sandbox context with dynamic permissions requires cwd"
_NO_MXC = "native MXC is unavailable on this executor"
# Clients send the same few contexts again and again.
_REMEMBERED_POLICIES = 256
# The kernel accepts no longer path.
_PATH_BYTES = 4096


def resolve(
    context: SandboxContext,
    *,
    for_process: bool,
    cwd: bytes | None = None,
    tmpdir: bytes | None = None,
    is_read: bool = False,
    is_proxied: bool = False,
) -> Policy:
    """What *context* allows a process or a file request; *is_read* is a request that only looks.

    *cwd* is the working directory of a process, *tmpdir* its TMPDIR, or the server's for a file
    request. A file request never has a network. Raises InvalidParams or InvalidRequest as the
    reference does: file requests that need no sandbox accept a foreign `cwd`.
    """
    is_short = context.is_short and max(len(cwd or b""), len(tmpdir or b"")) <= _PATH_BYTES
    judge = _remembered if is_short else _judged
    return judge(context, for_process, cwd, tmpdir, is_read, is_proxied)


def _judged(
    context: SandboxContext,
    for_process: bool,
    cwd: bytes | None,
    tmpdir: bytes | None,
    is_read: bool,
    is_proxied: bool,
) -> Policy:
    intent = context.intent
    if for_process:
        return _for_process(intent, cwd, tmpdir, is_proxied=is_proxied)
    return _for_file(intent, tmpdir, is_read=is_read)


_remembered = lru_cache(maxsize=_REMEMBERED_POLICIES)(_judged)


def widened(policy: Policy, granted: tuple[tuple[bytes, str], ...]) -> Policy:
    """*policy* with what was *granted* since: paths, each with "write" or "read"; the network.

    Other grants widen no policy; a supervisor gives what they are about.
    """
    if not policy.is_proxied and any(given == "network" for _, given in granted):
        policy = structs.replace(policy, network="enabled")
    if not policy.is_managed:
        return policy
    rules = {rule.path: rule for rule in policy.rules}
    for path, given in granted:
        if given not in _ACCESS:
            continue
        before = rules.get(path)
        ungranted = None if before is None else before.access
        rules[path] = Rule(path, _ACCESS[given], is_granted=True, ungranted=ungranted)
    return structs.replace(policy, rules=tuple(sorted(rules.values())))


def access(policy: Policy, path: bytes) -> Access | None:
    """What *policy* gives at *path*, which is absolute and normal; None hides even its name.

    The deepest rule at or above *path* decides. Globs, symbolic links and protected names are not
    known here.
    """
    if not policy.is_managed:
        return Access.WRITE
    holding = [rule for rule in policy.rules if is_within(path, rule.path)]
    # All of them are prefixes of one path, so the longest is the deepest.
    deepest = max(holding, key=lambda rule: (len(rule.path), rule.access), default=None)
    return None if deepest is None else deepest.access


def is_full_read(policy: Policy) -> bool:
    """True if everything may be read."""
    if not policy.is_managed:
        return True
    is_narrowed = any(rule.access is Access.DENY for rule in policy.rules) or bool(policy.globs)
    return access(policy, b"/") is not None and not is_narrowed


def is_full_write(policy: Policy) -> bool:
    """True if everything may be written."""
    if not policy.is_managed:
        return True
    is_narrowed = any(rule.access is not Access.WRITE for rule in policy.rules)
    return access(policy, b"/") is Access.WRITE and not is_narrowed and not policy.globs


def is_within(path: bytes, directory: bytes) -> bool:
    """True if *path* is *directory* or lexically below it; both are absolute and normal."""
    return path == directory or directory == b"/" or path.startswith(directory + b"/")


def _for_process(
    intent: Intent, cwd: bytes | None, tmpdir: bytes | None, *, is_proxied: bool
) -> Policy:
    anchors = _Anchors(intent, cwd, tmpdir)
    policy = _resolved(intent, anchors, InvalidParams)
    for what, uri in anchors.foreign:
        where = "cwd" if what == "cwd" else "workspace root"
        text = f"sandbox {where} URI `{uri.text}` is not valid on this exec-server host"
        raise InvalidParams(f"{text}: {_complaint(uri)}")
    if intent.windows_sandbox_level == "mxc":
        raise InvalidParams(_NO_MXC)
    return structs.replace(policy, is_proxied=is_proxied)


def _for_file(intent: Intent, tmpdir: bytes | None, *, is_read: bool) -> Policy:
    if not intent.has_cwd and _is_dynamic(intent):
        raise InvalidParams(_NO_CWD)
    anchors = _Anchors(intent, None, tmpdir)
    policy = _resolved(intent, anchors, InvalidRequest)
    if not policy.is_managed:
        return policy
    lost = anchors.lost
    is_direct = is_read and is_full_read(policy) and Access.DENY not in lost
    if not is_direct:
        for what, uri in anchors.foreign:
            text = "file system sandbox workspace root is not native to this exec-server host: "
            raise InvalidRequest(f"{'' if what == 'cwd' else text}{_complaint(uri)}")
        if intent.windows_sandbox_level == "mxc":
            prefix = "failed to prepare fs sandbox: failed to prepare MXC sandbox"
            raise InvalidRequest(f"{prefix}: {_NO_MXC}")
    return structs.replace(policy, network="restricted")


class _Anchors:
    """The directories that relative parts of a context refer to, and which of them are foreign."""

    def __init__(self, intent: Intent, cwd: bytes | None, tmpdir: bytes | None) -> None:
        self.foreign: list[tuple[str, PathUri]] = []
        # The access that entries gave whose directory is foreign.
        self.lost: set[Access] = set()
        self.cwd = cwd if intent.cwd is None else self._native("cwd", intent.cwd)
        self.roots: tuple[bytes, ...]
        if intent.workspace_roots is None:
            self.roots = () if self.cwd is None else (self.cwd,)
        else:
            natives = [self._native("root", root) for root in intent.workspace_roots]
            self.roots = tuple(native for native in natives if native is not None)
        # A relative TMPDIR names no place that both sides know.
        self.tmpdir = normalised(tmpdir) if tmpdir and tmpdir.startswith(b"/") else None

    def _native(self, what: str, uri: PathUri) -> bytes | None:
        try:
            return uri.native
        except InvalidRequest:
            self.foreign.append((what, uri))
            return None


def _complaint(uri: PathUri) -> str:
    try:
        return str(uri.native)
    except InvalidRequest as exc:
        return exc.message


def _is_dynamic(intent: Intent) -> bool:
    files = getattr(intent.permissions, "file_system", None)
    return isinstance(files, Restricted) and any(map(_is_relative, files.entries))


def _is_relative(entry: Entry) -> bool:
    if isinstance(entry.path, AtSpecial):
        return isinstance(entry.path.value, ProjectRoots)
    return isinstance(entry.path, AtGlob) and not entry.path.pattern.startswith("/")


def _resolved(intent: Intent, anchors: _Anchors, refusal: type[RpcError]) -> Policy:
    permissions = intent.permissions
    if isinstance(permissions, Disabled):
        return Policy(False, "enabled")
    if isinstance(permissions, External) or isinstance(permissions.file_system, Unrestricted):
        return Policy(False, permissions.network)
    rules: dict[bytes, Rule] = {}
    globs: set[Glob] = set()
    for entry in permissions.file_system.entries:
        if anchors.foreign and _is_relative(entry):
            anchors.lost.add(_ACCESS[entry.kind])
        for found in _expanded(entry, anchors, refusal):
            if isinstance(found, Glob):
                globs.add(found)
            else:
                _add(rules, found)
    policy = Policy(
        True,
        permissions.network,
        tuple(sorted(rules.values())),
        tuple(sorted(globs, key=lambda glob: (glob.pattern, glob.anchor))),
        permissions.file_system.glob_scan_max_depth if globs else None,
        protects_metadata=intent.protects_metadata,
    )
    if is_full_write(policy) and anchors.lost <= {Access.WRITE}:
        return Policy(False, permissions.network)
    return policy


def _add(rules: dict[bytes, Rule], rule: Rule) -> None:
    """Add a rule; of two rules for one path the more careful one stays."""
    other = rules.get(rule.path)
    if other is None or (rule.access, not rule.only_existing) > (
        other.access,
        not other.only_existing,
    ):
        rules[rule.path] = rule


def _expanded(entry: Entry, anchors: _Anchors, refusal: type[RpcError]) -> Iterator[Rule | Glob]:
    """The rules and globs for which *entry* stands here."""
    place, given = entry.path, _ACCESS[entry.kind]
    if isinstance(place, AtPath):
        try:
            yield Rule(place.path.native, given)
        except InvalidRequest as exc:
            raise refusal(f"invalid sandbox permission path URI: {exc.message}") from exc
    elif isinstance(place, AtGlob):
        if given is Access.DENY:
            yield from _globs(place.pattern, anchors)
    elif isinstance(place.value, Root):
        yield Rule(b"/", given)
    elif isinstance(place.value, Minimal):
        # This path only makes sense for reading.
        if given is Access.READ:
            yield from (Rule(path, given, only_existing=True) for path in MINIMAL_READS)
    elif isinstance(place.value, ProjectRoots):
        for root in anchors.roots:
            path = _below(root, place.value.subpath or "", is_denied=given is Access.DENY)
            if path is not None:
                yield Rule(path, given)
    elif isinstance(place.value, Tmpdir):
        if anchors.tmpdir is not None:
            yield Rule(anchors.tmpdir, given)
    elif isinstance(place.value, SlashTmp):
        yield Rule(b"/tmp", given, only_existing=True)


def _below(root: bytes, subpath: str, *, is_denied: bool) -> bytes | None:
    """*subpath* below *root*. If it leads out of *root*, it gives nothing, but it still denies."""
    if "\0" in subpath:
        return None
    sub = subpath.encode("utf-8", "surrogateescape")
    path = normalised(sub if sub.startswith(b"/") else root + b"/" + sub)
    stays = not sub.startswith(b"/") and is_within(path, root)
    return path if stays or is_denied else None


def _globs(pattern: str, anchors: _Anchors) -> Iterator[Glob]:
    bases: tuple[bytes, ...]
    if pattern.startswith("/"):
        bases = (b"/",)
    elif pattern.startswith(_IN_PROJECT_ROOTS):
        pattern, bases = pattern.removeprefix(_IN_PROJECT_ROOTS), anchors.roots
    elif anchors.cwd is not None:
        bases = (anchors.cwd,)
    elif anchors.foreign:
        return
    else:
        raise InvalidParams(_NO_CWD)
    for base in bases:
        yield _anchored(base, pattern)


def _anchored(base: bytes, pattern: str) -> Glob:
    """*pattern* below *base*, whose own characters are no wildcards; ``..`` leads up."""
    literal = [part for part in _text(base).split("/") if part]
    parts = list(literal)
    for part in pattern.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
        literal = literal[: len(parts)]
    return Glob("/" + "/".join(parts), len("/" + "/".join(literal)) if literal else 0)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
