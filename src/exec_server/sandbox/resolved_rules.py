"""Where the rules of a policy lead in the file system as it is now."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable

from exec_server.sandbox import globs, protected_names
from exec_server.sandbox.file_system_facts import FileSystemFacts, Located, Locator, join, parent
from exec_server.sandbox.model import Access, Glob, Hide, Rule, Unenforceable, depth
from exec_server.sandbox.policy import is_within

# Errors that a sandboxed command, with no more rights than ours, would meet, too.
_COMMAND_FAILS_TOO = (errno.EACCES, errno.EPERM, errno.EROFS)

_READ_ONLY, _DENIED, _WRITABLE = "read-only", "deny-read", "writable"

PROC = b"/proc"
# Every sandbox has its own of these, with its own devices and processes; a rule to read them adds
# nothing.
FRESH = (b"/dev", PROC)


class ResolvedRules:
    """The access at each place to which rules lead. All paths here are free of symbolic links.

    Methods raise Unenforceable for what mounts cannot express: above all a restriction whose path
    crosses a symbolic link that the sandboxed command could change.
    """

    def __init__(self, facts: FileSystemFacts) -> None:
        self._facts = facts
        self._locator = Locator(facts)
        # The access that applies at and below each place that exists.
        self.access: dict[bytes, Access] = {}
        self.located: dict[bytes, Located] = {}
        # What takes the place of names that must not be created.
        self.missing: dict[bytes, Hide] = {}
        # The symbolic links that lead to places, each with its target.
        self.links: dict[bytes, bytes] = {}
        self._missing_writes: set[bytes] = set()
        self._creatable: dict[bytes, bool] = {}

    def place(self, rules: Iterable[Rule]) -> None:
        """Find where all *rules* lead."""
        holding = (each for rule in rules if (each := self._without_links(rule)) is not None)
        by_depth = sorted(holding, key=lambda rule: depth(rule.path))
        if by_depth and by_depth[0].path == b"/":
            # If the root is denied, the base is empty and everything else is added to it.
            if by_depth[0].access is not Access.DENY:
                self._add(self._locator.locate(b"/"), by_depth[0].access)
            del by_depth[0]
        self._grant([rule for rule in by_depth if rule.access is Access.WRITE])
        for rule in by_depth:
            if rule.access is not Access.WRITE:
                self._restrict(rule)

    def _without_links(self, rule: Rule) -> Rule | None:
        """*rule*; a grant for a path on which there is a link now holds no longer.

        An earlier command that was granted it may have made the link, and what that leads to was
        never granted.
        """
        if not rule.is_granted or not self._locator.locate(rule.path).links:
            return rule
        return None if rule.ungranted is None else Rule(rule.path, rule.ungranted)

    def deny_matches(self, glob: Glob, max_depth: int | None) -> None:
        """Deny every file that *glob* matches now; if a match is a link, deny what it leads to."""
        prefix = globs.fixed_prefix(glob)
        located = self._locator.locate(prefix)
        self._check_crossings(_DENIED, prefix, located)
        if located.trouble is not None:
            raise _unknown(_DENIED, prefix, located.trouble)
        if not located.is_directory:
            return
        for match in globs.scan(glob, located.path, max_depth, self._facts):
            if not match.is_symlink or self._locator.locate(match.path).exists:
                self._restrict(Rule(match.path, Access.DENY))

    def protect_metadata(self) -> None:
        """Keep the names of `protected_names` unchanged in every writable directory."""
        roots = [path for path, access in self.access.items() if access is Access.WRITE]
        for root in roots:
            if self.located[root].is_directory:
                for name in protected_names.NAMES:
                    self._protect(root, name)

    def make_trusted(self, files: Iterable[tuple[bytes, Callable[[], object]]]) -> None:
        """Have files made that the command could make; they are kept unchanged like others.

        A link that leads to one must not be changed either.
        """
        for path, make in files:
            located = self._locator.locate(path)
            if not located.exists and self.holding(located.path) is Access.WRITE:
                try:
                    self._facts.make(make)
                except OSError as exc:
                    if exc.errno not in _COMMAND_FAILS_TOO:
                        raise _unknown(_READ_ONLY, path, exc) from exc
                self._locator = Locator(self._facts)
            folder = parent(parent(path))
            for link, _ in self._locator.locate(path).links:
                # What is above the folder of settings belongs to the machine.
                if is_within(link, folder) and self.holding(link) is Access.WRITE:
                    raise _crossing(_READ_ONLY, path, link)

    def keep_own(self, protected: Iterable[bytes], hidden: Iterable[bytes]) -> tuple[bytes, ...]:
        """Keep the server's own places unchanged or hidden, whatever the rules say about them.

        Returns the hidden places that the sandbox would show otherwise.
        """
        for path in protected:
            located = self._locator.locate(path)
            if located.exists and self.holding(located.path) is Access.WRITE:
                self._force(located, Access.READ)
        closed = []
        for path in hidden:
            located = self._locator.locate(path)
            if located.exists and self.holding(located.path) not in (None, Access.DENY):
                for below in [below for below in self.access if is_within(below, located.path)]:
                    del self.access[below]
                self._force(located, Access.DENY)
                closed.append(located.path)
        return tuple(closed)

    def follow_aliases(self, own: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Restrict other paths of what is restricted, unless a rule says what they are.

        Returns *own*, the hidden places, with those that were added.
        """
        found = list(own)
        restricted = [
            (path, access)
            for path, access in self.access.items()
            if access is Access.DENY
            or (access is Access.READ and path != b"/" and self._is_writable_above(path))
        ]
        if not restricted and not self.missing:
            return own
        aliases = self._facts.aliases(
            {*(path for path, _ in restricted), *map(parent, self.missing)}
        )
        for path, access in restricted:
            for alias in aliases[path]:
                located = self._locator.locate(alias)
                if self._is_open_to(alias, access) and located.exists:
                    self._force(located, access)
                    if path in own:
                        found.append(alias)
        for path, hidden in list(self.missing.items()):
            for above in aliases[parent(path)]:
                alias = join(above, path.rpartition(b"/")[2])
                if self._is_open_to(alias, Access.READ) and not self._locator.locate(alias).exists:
                    self.missing.setdefault(alias, Hide(alias, hidden.is_directory, hidden.mode))
        return tuple(found)

    def _is_writable_above(self, path: bytes) -> bool:
        return self.holding(parent(path)) is Access.WRITE

    def _is_open_to(self, alias: bytes, access: Access) -> bool:
        """True if *alias* has no rule of its own, and more than *access* is given there."""
        if alias in self.access or any(is_within(alias, fresh) for fresh in FRESH):
            return False
        held = self.holding(alias)
        return held is Access.WRITE or (access is Access.DENY and held is Access.READ)

    def _force(self, located: Located, access: Access) -> None:
        self.located[located.path] = located
        self.access[located.path] = access

    def allow_reads(self, paths: Iterable[bytes]) -> None:
        """Add *paths* to an empty base, unless a rule says something about them."""
        for path in paths:
            located = self._locator.locate(path)
            if not located.exists or self._crossed(located) is not None:
                continue
            if self.holding(located.path) is None:
                self._add(located, Access.READ)
            self.links.update(located.links)

    def holding(self, path: bytes) -> Access | None:
        """The access of the deepest place at or above *path*."""
        found = nearest(path, self.access)
        return None if found is None else found[1]

    def is_protected(self, path: bytes) -> bool:
        """True if *path* is one of the names of `protected_names` in a writable directory."""
        above, _, name = path.rpartition(b"/")
        return name in protected_names.NAMES and self.access.get(above or b"/") is Access.WRITE

    def _grant(self, rules: list[Rule]) -> None:
        """Make what exists writable.

        A link that a sandboxed command can change must not decide what the next one may write.
        """
        found = [(rule, self._locator.locate(rule.path)) for rule in rules]
        for rule, located in found:
            if not located.exists and self._locator.locate(parent(rule.path)).exists:
                self._missing_writes.add(located.path)
        there = [
            (rule, located)
            for rule, located in found
            if located.exists and (located.is_directory or not rule.only_existing)
        ]
        for _, located in there:
            if not located.links:
                self._add(located, Access.WRITE)
        certain = {path for path, access in self.access.items() if access is Access.WRITE}
        writable = certain | {located.path for _, located in there}
        for rule, located in there:
            link = next((link for link, _ in located.links if _is_in(link, writable)), None)
            if link is not None and not _is_in(located.path, certain):
                raise _crossing(_WRITABLE, rule.path, link)
            self._add(located, Access.WRITE)

    def _restrict(self, rule: Rule) -> None:
        located = self._locator.locate(rule.path)
        kind = _READ_ONLY if rule.access is Access.READ else _DENIED
        is_writable = self.holding(located.path) is Access.WRITE
        if rule.only_existing and located.links and is_writable:
            # The rule gives what programs need; that it also has a writable name takes nothing
            # away.
            return
        self._check_crossings(kind, rule.path, located)
        if located.exists:
            self._add(located, rule.access)
        elif located.trouble is not None:
            if is_writable or rule.access is Access.DENY:
                raise _unknown(kind, rule.path, located.trouble)
        elif is_writable and not rule.only_existing:
            self._keep_missing(located, rule.access)

    def _check_crossings(self, kind: str, path: bytes, located: Located) -> None:
        link = self._crossed(located)
        if link is not None:
            raise _crossing(kind, path, link)

    def _crossed(self, located: Located) -> bytes | None:
        """The first link on the way that a sandboxed command can change."""
        for link, _ in located.links:
            if self.holding(link) is Access.WRITE:
                return link
        return None

    def _add(self, located: Located, access: Access) -> None:
        self.located[located.path] = located
        self.access[located.path] = max(access, self.access.get(located.path, access))
        self.links.update(located.links)

    def _keep_missing(self, located: Located, access: Access) -> None:
        """Put something in the place of a name that must not be created in the sandbox."""
        above = parent(located.path)
        if located.is_blocked:
            # If the file stays, it cannot become the directory in which the name would be made.
            self._add(self._locator.locate(above), Access.READ)
            return
        if not self._can_create_in(above):
            return
        is_directory = self.is_protected(located.path)
        mode = 0o444
        if is_directory:
            mode = 0 if access is Access.DENY else 0o555
        other = self.missing.get(located.path)
        if other is None or mode < other.mode:
            self.missing[located.path] = Hide(located.path, is_directory, mode)

    def _can_create_in(self, directory: bytes) -> bool:
        if directory not in self._creatable:
            try:
                self._creatable[directory] = self._facts.can_create_in(directory)
            except OSError:
                self._creatable[directory] = True
        return self._creatable[directory]

    def _protect(self, root: bytes, name: bytes) -> None:
        path = join(root, name)
        if self.access.get(path) is Access.WRITE or path in self._missing_writes:
            return
        if path not in self.access and path not in self.missing:
            self._restrict(Rule(path, Access.READ))
        mode = self._locator.locate(path).mode
        if name == protected_names.GIT and mode is not None and stat.S_ISREG(mode):
            self._protect_repository(path, root)

    def _protect_repository(self, path: bytes, root: bytes) -> None:
        """Protect what the .git file *path* names, and the repository that this belongs to."""
        target = protected_names.gitdir(self._head(path), root)
        if target is None:
            return
        directory = self._protect_target(target).path
        common = self._locator.locate(join(directory, protected_names.COMMON))
        if common.mode is not None and stat.S_ISREG(common.mode):
            target = protected_names.named(self._head(common.path), directory)
            if target is not None:
                self._protect_target(target)

    def _head(self, path: bytes) -> bytes:
        try:
            return self._facts.head(path, protected_names.HEAD_BYTES)
        except OSError as exc:
            raise _unknown(_READ_ONLY, path, exc) from exc

    def _protect_target(self, target: bytes) -> Located:
        located = self._locator.locate(target)
        self._check_crossings(_READ_ONLY, target, located)
        # Where nothing can be written, there is nothing to protect.
        if located.path not in self.access and self.holding(located.path) is Access.WRITE:
            self._restrict(Rule(target, Access.READ))
        return located


def nearest(path: bytes, places: dict[bytes, Access]) -> tuple[bytes, Access] | None:
    """The deepest of *places* at or above *path*, and its access."""
    while True:
        if path in places:
            return path, places[path]
        if path == b"/":
            return None
        path = parent(path)


def _is_in(path: bytes, places: set[bytes]) -> bool:
    return any(is_within(path, place) for place in places)


def _crossing(kind: str, path: bytes, link: bytes) -> Unenforceable:
    return Unenforceable(
        f"cannot enforce sandbox {kind} path {_shown(path)} "
        f"because it crosses writable symlink {_shown(link)}"
    )


def _unknown(kind: str, path: bytes, exc: OSError) -> Unenforceable:
    return Unenforceable(f"cannot enforce sandbox {kind} path {_shown(path)}: {exc.strerror}")


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")
