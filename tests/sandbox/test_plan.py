"""Policies planned for a file system: what is mounted, in which order, and what is refused."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exec_server.protocol.sandbox import workspace_write
from exec_server.sandbox.file_system_facts import FileSystemFacts, FoundEntry, parent
from exec_server.sandbox.model import (
    Access,
    Glob,
    Hide,
    Plan,
    Policy,
    Rule,
    Show,
    Step,
    Unenforceable,
)
from exec_server.sandbox.plan import plan
from exec_server.sandbox.policy import MINIMAL_READS, is_within, resolve
from tests.requirements import requirement

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
PROTECTED = (b".agents", b".aws", b".codex", b".git")
NOBODY = 65534
Seen = Literal["write", "read", "closed", "gone"]


class Tree(FileSystemFacts):
    """An imagined file system; directories end in a slash, links have a target."""

    def __init__(self, *names: str, links: dict[str, str] | None = None, is_root: bool = True):
        self.modes: dict[bytes, int] = {b"/": stat.S_IFDIR}
        self.targets = {key.encode(): value.encode() for key, value in (links or {}).items()}
        self.is_root = is_root
        for name in sorted((*names, *(links or {})), key=len):
            path = name.rstrip("/").encode()
            self.modes[path] = stat.S_IFDIR if name.endswith("/") else stat.S_IFREG
            while path != b"/":
                path = parent(path)
                self.modes[path] = stat.S_IFDIR
        self.modes.update(dict.fromkeys(self.targets, stat.S_IFLNK))
        self.contents: dict[bytes, bytes] = {}
        self.unreadable: set[bytes] = set()
        self.others: dict[bytes, list[bytes]] = {}

    def mode(self, path: bytes) -> int:
        if path not in self.modes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self.modes[path]

    def link_target(self, path: bytes) -> bytes:
        return self.targets[path]

    def head(self, path: bytes, size: int) -> bytes:
        if path in self.unreadable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return self.contents.get(path, b"")[:size]

    def make(self, make: Callable[[], object]) -> None:
        """Nothing of the machine is changed."""

    def aliases(self, paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        return {path: self.others.get(path, []) for path in paths}

    def entries(self, path: bytes) -> Iterator[FoundEntry]:
        for name, mode in self.modes.items():
            if name != b"/" and parent(name) == path:
                base = name.rpartition(b"/")[2]
                yield FoundEntry(base, stat.S_ISDIR(mode), stat.S_ISLNK(mode))

    def can_create_in(self, directory: bytes) -> bool:
        return self.is_root or directory != b"/"


def policy(*rules: tuple[str, Access], globs: tuple[str, ...] = ()) -> Policy:
    found = tuple(sorted(Rule(path.encode(), access) for path, access in rules))
    return Policy(True, "restricted", found, tuple(map(Glob, globs)))


def steps(
    tree: FileSystemFacts, *rules: tuple[str, Access], globs: tuple[str, ...] = ()
) -> list[Step]:
    """The steps of a plan without those that only protect metadata."""
    made = plan(policy(*rules, globs=globs), facts=tree)
    return [step for step in made.steps if step.path.rpartition(b"/")[2] not in PROTECTED]


def shown(path: str) -> Show:
    return Show(path.encode(), is_writable=True)


def carved(path: str) -> Show:
    return Show(path.encode(), is_writable=False)


def closed(path: str, *reopened: str) -> Hide:
    folders = tuple(name.encode() for name in reopened)
    return Hide(path.encode(), True, 0o111 if reopened else 0, folders)


def refusal(tree: FileSystemFacts, *rules: tuple[str, Access], globs: tuple[str, ...] = ()) -> str:
    with pytest.raises(Unenforceable) as refused:
        plan(policy(*rules, globs=globs), facts=tree)
    return str(refused.value)


HOST = ("/", READ)


# Combinations.


@requirement("plan:combinations")
def test_a_policy_that_does_not_restrict_files_mounts_nothing():
    made = plan(Policy(False, "restricted"))
    assert made == Plan(Policy(False, "restricted"), shows_host=True)
    assert not made.needs_namespaces


@requirement("plan:combinations")
def test_read_only_is_the_base_alone():
    made = plan(policy(HOST), facts=Tree())
    assert made.shows_host
    assert made.steps == ()


@requirement("plan:combinations")
def test_carve_outs_come_after_what_they_are_carved_out_of():
    tree = Tree("/w/r/w/r/", "/w/f")
    rules = [HOST, ("/w", WRITE), ("/w/r", READ), ("/w/r/w", WRITE), ("/w/f", READ)]
    expected = [shown("/w"), carved("/w/f"), carved("/w/r"), shown("/w/r/w")]
    assert steps(tree, *rules) == expected


@requirement("plan:combinations")
def test_denied_directories_and_files():
    tree = Tree("/s/", "/f", "/w/s/", "/w/f")
    rules = [HOST, ("/s", DENY), ("/f", DENY), ("/w", WRITE), ("/w/s", DENY), ("/w/f", DENY)]
    hidden = Hide(b"/f", False, 0)
    inside = Hide(b"/w/f", False, 0)
    expected = [hidden, closed("/s"), shown("/w"), inside, closed("/w/s")]
    assert steps(tree, *rules) == expected


@requirement("plan:combinations")
def test_what_is_written_below_a_denied_directory_is_reopened():
    tree = Tree("/d/a/w/", "/d/v/", "/d/v/x/", "/d/f")
    rules = [HOST, ("/d", DENY), ("/d/a/w", WRITE), ("/d/v", WRITE), ("/d/v/x", WRITE)]
    first = closed("/d", "/d/v", "/d/a/w")
    assert steps(tree, *rules) == [first, shown("/d/v"), shown("/d/a/w"), shown("/d/v/x")]
    (hidden, file) = steps(tree, HOST, ("/d", DENY), ("/d/f", WRITE))
    assert hidden == Hide(b"/d", True, 0o111, (), (b"/d/f",))
    assert file == shown("/d/f")


@requirement("plan:combinations")
def test_what_is_read_below_a_denied_directory_stays_closed():
    tree = Tree("/d/r/s/w/")
    assert steps(tree, HOST, ("/d", DENY), ("/d/r", READ)) == [closed("/d")]
    rules = [HOST, ("/d", DENY), ("/d/r", READ), ("/d/r/s", DENY), ("/d/r/s/w", WRITE)]
    assert steps(tree, *rules) == [closed("/d", "/d/r/s/w"), shown("/d/r/s/w")]


@requirement("plan:combinations", "plan:empty-base")
def test_a_denied_root_is_an_empty_base():
    made = plan(policy(("/", DENY), ("/r", READ)), facts=Tree("/r/", "/x/"))
    assert not made.shows_host
    assert made.steps == (carved("/r"),)


@requirement("plan:combinations")
def test_a_writable_root_comes_first():
    tree = Tree("/r/", "/s/")
    assert steps(tree, ("/", WRITE), ("/r", READ), ("/s", DENY)) == [
        *(shown("/"), carved("/r"), closed("/s"))
    ]


@requirement("plan:empty-base")
def test_an_empty_base_shows_what_is_listed():
    tree = Tree("/r/a/", "/f", "/w/", "/d/")
    rules = [("/r", READ), ("/r/a", READ), ("/f", READ), ("/w", WRITE), ("/d", DENY), ("/no", READ)]
    assert steps(tree, *rules) == [closed("/d"), carved("/f"), carved("/r"), shown("/w")]


@requirement("plan:empty-base")
def test_an_empty_base_has_the_links_that_lead_to_what_is_listed():
    tree = Tree("/usr/bin/", "/usr/lib/", "/r/", links={"/bin": "usr/bin", "/l": "/r", "/r/k": "."})
    made = plan(policy(("/usr", READ), ("/bin", READ), ("/l", READ), ("/r/k", READ)), facts=tree)
    assert made.steps == (carved("/r"), carved("/usr"))
    assert made.links == ((b"/bin", b"usr/bin"), (b"/l", b"/r"))
    assert plan(policy(HOST, ("/l", WRITE)), facts=tree).links == ()


@requirement("plan:empty-base")
def test_the_minimal_set_works_on_this_host():
    found = tuple(Rule(path, READ, only_existing=True) for path in MINIMAL_READS)
    made = plan(Policy(True, "restricted", tuple(sorted(found))))
    visible = [step.path for step in made.steps] + [link for link, _ in made.links]
    for path in (b"/usr", b"/bin", b"/etc"):
        assert path in visible
    assert not made.placeholders


@requirement("plan:empty-base")
def test_extra_reads_are_added_where_the_policy_is_silent():
    tree = Tree("/r/x", "/d/x", "/w/x", "/h/x", "/e/x", links={"/l": "/h/x"})
    rules = [("/r", READ), ("/d", DENY), ("/w", WRITE)]
    extra = (b"/r/x", b"/d/x", b"/w/x", b"/l", b"/no")
    made = plan(policy(*rules), facts=tree, extra_reads=extra)
    assert [step for step in made.steps if step.path[:2] != b"/w"] == [
        *(closed("/d"), carved("/r"), carved("/h/x"))
    ]
    assert Show(b"/w/x", is_writable=False) not in made.steps
    assert made.links == ((b"/l", b"/h/x"),)


@requirement("plan:empty-base")
def test_own_devices_are_not_replaced_by_the_hosts():
    tree = Tree("/dev/shm/", "/proc/")
    rules = [("/dev", READ), ("/proc", READ), ("/dev/shm", WRITE)]
    assert steps(tree, *rules) == [shown("/dev/shm")]
    assert steps(tree, HOST, ("/dev", DENY)) == [closed("/dev")]


# Symbolic links.


@requirement("plan:own-proc")
@pytest.mark.parametrize("path", [b"/proc", b"/proc/cpuinfo"])
def test_a_denial_in_proc_is_refused_because_proc_is_made_last(path):
    wanted = Policy(True, "restricted", (Rule(b"/", READ), Rule(path, DENY)))
    with pytest.raises(Unenforceable, match="deny-read path /proc"):
        plan(wanted, facts=Tree("/proc/cpuinfo"))


@requirement("plan:symlinks")
def test_a_write_root_binds_what_it_leads_to():
    links = {"/l": "/t/../t2", "/t2": "x/y", "/x/y": "../z"}
    tree = Tree("/z/in/", "/t/", links=links)
    assert steps(tree, HOST, ("/l/in", WRITE)) == [shown("/z/in")]


@requirement("plan:symlinks")
def test_a_denied_link_closes_what_it_leads_to():
    tree = Tree("/t/s/", "/t/f", links={"/l": "t", "/m": "/t/f"})
    rules = [HOST, ("/l/s", DENY), ("/m", DENY)]
    assert steps(tree, *rules) == [Hide(b"/t/f", False, 0), closed("/t/s")]


@pytest.mark.parametrize("target", ["/t", "nowhere", "/w/d", "."])
@requirement("plan:symlinks")
def test_a_restriction_across_a_writable_link_is_refused(target):
    tree = Tree("/w/d/", "/t/f", links={"/w/l": target})
    text = "cannot enforce sandbox {} path /w/l/f because it crosses writable symlink /w/l"
    assert refusal(tree, HOST, ("/w", WRITE), ("/w/l/f", READ)) == text.format("read-only")
    assert refusal(tree, HOST, ("/w", WRITE), ("/w/l/f", DENY)) == text.format("deny-read")


@requirement("plan:symlinks")
def test_links_in_carve_outs_cannot_be_changed():
    tree = Tree("/w/r/", "/t/s/", links={"/w/r/l": "/t"})
    rules = [HOST, ("/w", WRITE), ("/w/r", READ), ("/w/r/l/s", DENY)]
    assert steps(tree, *rules) == [shown("/w"), closed("/t/s"), carved("/w/r")]


@requirement("plan:symlinks")
def test_endless_links_are_no_place():
    tree = Tree(links={"/a": "b", "/b": "a"})
    assert steps(tree, HOST, ("/a", WRITE), ("/a/x", READ)) == []
    assert "Too many levels" in refusal(tree, HOST, ("/a", DENY))


@requirement("plan:writable-link-grants-nothing")
def test_a_link_in_a_writable_place_does_not_choose_what_is_writable():
    tree = Tree("/w/d/", "/t/", links={"/w/l": "/t", "/w/m": "d", "/t/self": "."})
    text = "cannot enforce sandbox writable path /w/l because it crosses writable symlink /w/l"
    assert refusal(tree, HOST, ("/w", WRITE), ("/w/l", WRITE)) == text
    assert "/t/self" in refusal(tree, HOST, ("/t/self", WRITE))
    # A link is harmless if it leads to a place that is writable anyway.
    assert steps(tree, HOST, ("/w", WRITE), ("/w/m", WRITE)) == [shown("/w"), shown("/w/d")]
    assert steps(tree, HOST, ("/w", WRITE), ("/w/l", WRITE), ("/t", WRITE)) == [
        *(shown("/t"), shown("/w"))
    ]


@requirement("plan:symlinks")
def test_what_cannot_be_looked_at_is_refused_where_it_matters():
    class Closed(Tree):
        def mode(self, path: bytes) -> int:
            if path.startswith((b"/w/c/", b"/c/")):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return super().mode(path)

    tree = Closed("/w/c/", "/c/")
    text = "cannot enforce sandbox {} path {}: Permission denied"
    assert refusal(tree, HOST, ("/c/x", DENY)) == text.format("deny-read", "/c/x")
    assert refusal(tree, HOST, ("/w", WRITE), ("/w/c/x", READ)) == text.format(
        "read-only", "/w/c/x"
    )
    assert steps(tree, HOST, ("/c/x", READ), ("/c/y", WRITE)) == []


# What is missing.


@requirement("plan:missing")
def test_missing_write_roots_are_skipped():
    made = plan(policy(HOST, ("/no", WRITE), ("/no/x", READ), ("/no/y", DENY)), facts=Tree())
    assert made.steps == ()
    assert made.placeholders == ()


@pytest.mark.parametrize("access", [READ, DENY])
@requirement("plan:missing")
def test_the_first_missing_component_is_shadowed(access):
    made = plan(policy(HOST, ("/w", WRITE), ("/w/a/b/c", access)), facts=Tree("/w/a/"))
    shadow = Hide(b"/w/a/b", False, 0o444)
    assert shadow in made.steps
    assert (b"/w/a/b", False) in made.placeholders


@requirement("plan:missing")
def test_a_missing_restriction_elsewhere_has_no_effect():
    tree = Tree("/w/r/", "/w/f")
    rules = [HOST, ("/no", DENY), ("/w", WRITE), ("/w/r", READ), ("/w/r/no", DENY)]
    assert steps(tree, *rules) == [shown("/w"), carved("/w/r")]


@requirement("plan:missing")
def test_a_file_in_the_way_of_a_restriction_must_stay_one():
    tree = Tree("/w/f", "/f")
    for access in (READ, DENY):
        rules = [HOST, ("/f/x", access), ("/w", WRITE), ("/w/f/x", access)]
        assert steps(tree, *rules) == [shown("/w"), carved("/w/f")]
    # A file that may be written itself cannot be replaced either: it is a mount.
    assert steps(tree, HOST, ("/w", WRITE), ("/w/f", WRITE), ("/w/f/x", DENY)) == [
        *(shown("/w"), shown("/w/f"))
    ]


@requirement("plan:missing")
def test_what_need_not_exist_is_not_shadowed():
    minimal = Rule(b"/nix/store", READ, only_existing=True)
    wanted = Policy(True, "restricted", (Rule(b"/", WRITE), minimal))
    assert not any(step.path.startswith(b"/nix") for step in plan(wanted, facts=Tree()).steps)


@requirement("plan:missing")
def test_what_is_needed_may_be_writable_under_another_name():
    tree = Tree("/usr/bin/", links={"/bin": "usr/bin"})
    minimal = Rule(b"/bin", READ, only_existing=True)
    wanted = Policy(True, "restricted", (minimal, Rule(b"/usr", WRITE)))
    assert Show(b"/usr/bin", is_writable=False) not in plan(wanted, facts=tree).steps
    everything = Policy(True, "restricted", (Rule(b"/", WRITE), minimal, Rule(b"/x", READ)))
    assert Show(b"/usr/bin", is_writable=False) not in plan(everything, facts=tree).steps


# Protected names.


def metadata_steps(tree: FileSystemFacts, *rules: tuple[str, Access]) -> list[Step]:
    made = plan(policy(HOST, ("/w", WRITE), *rules), facts=tree)
    return [step for step in made.steps if b"/.git" in step.path]


@requirement("plan:metadata")
def test_every_write_root_is_protected_and_nothing_below_its_top():
    made = plan(policy(HOST, ("/w", WRITE), ("/w/v", WRITE)), facts=Tree("/w/v/x/"))
    names = [b"/w/" + name for name in PROTECTED] + [b"/w/v/" + name for name in PROTECTED]
    hidden = [step for step in made.steps if isinstance(step, Hide)]
    assert hidden == [Hide(path, True, 0o555) for path in names]
    assert made.placeholders == tuple((path, True) for path in sorted(names))


@requirement("plan:metadata-lifted")
def test_protection_can_be_lifted_as_a_whole():
    wanted = Policy(True, "restricted", (Rule(b"/", READ), Rule(b"/w", WRITE)))
    lifted = structs.replace(wanted, protects_metadata=False)
    assert plan(wanted, facts=Tree("/w/")).placeholders
    assert plan(lifted, facts=Tree("/w/")).steps == (Show(b"/w", is_writable=True),)


@requirement("plan:metadata")
def test_what_vanishes_while_it_is_looked_at_is_missing():
    class Vanishing(Tree):
        """Another sandbox ends, and takes its placeholder with it."""

        def entries(self, path: bytes) -> Iterator[FoundEntry]:
            if path == b"/w/.agents":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return super().entries(path)

    missing = plan(policy(HOST, ("/w", WRITE)), facts=Tree("/w/"))
    vanishing = plan(policy(HOST, ("/w", WRITE)), facts=Vanishing("/w/.agents/"))
    assert vanishing.steps == missing.steps


@requirement("plan:metadata-equal", "plan:metadata")
def test_missing_and_empty_are_the_same_but_for_the_placeholder():
    missing = plan(policy(HOST, ("/w", WRITE)), facts=Tree("/w/"))
    empty = plan(policy(HOST, ("/w", WRITE)), facts=Tree(*(f"/w/{n.decode()}/" for n in PROTECTED)))
    assert missing.steps == empty.steps
    assert len(missing.placeholders) == 4
    assert empty.placeholders == ()


@requirement("plan:metadata")
def test_what_exists_is_shown_read_only():
    for name in ("/w/.git/config", "/w/.git"):
        assert metadata_steps(Tree(name)) == [carved("/w/.git")]


@requirement("plan:metadata")
def test_an_explicit_write_entry_lifts_the_protection_for_itself_only():
    tree = Tree("/w/.git/hooks/", "/w/.git/config")
    assert metadata_steps(tree, ("/w/.git", WRITE))[0] == shown("/w/.git")
    inner = metadata_steps(tree, ("/w/.git/hooks", WRITE))[:2]
    assert inner == [carved("/w/.git"), shown("/w/.git/hooks")]
    # The missing name itself may be made then, but not a directory on the way to a deeper one.
    assert metadata_steps(Tree("/w/"), ("/w/.git", WRITE)) == []
    assert metadata_steps(Tree("/w/"), ("/w/.git/hooks", WRITE)) == [Hide(b"/w/.git", True, 0o555)]


@requirement("plan:metadata")
def test_explicit_restrictions_of_protected_names():
    for tree in (Tree("/w/"), Tree("/w/.git/x")):
        assert metadata_steps(tree, ("/w/.git", READ)) == metadata_steps(tree)
    assert metadata_steps(Tree("/w/"), ("/w/.git", DENY)) == [Hide(b"/w/.git", True, 0)]
    assert metadata_steps(Tree("/w/.git/x"), ("/w/.git", DENY)) == [closed("/w/.git")]


@pytest.mark.parametrize("target", ["/t", "nowhere"])
@requirement("plan:metadata", "plan:symlinks")
def test_a_protected_name_that_is_a_link_is_refused(target):
    tree = Tree("/w/", "/t/", links={"/w/.git": target})
    assert refusal(tree, HOST, ("/w", WRITE)) == (
        "cannot enforce sandbox read-only path /w/.git because it crosses writable symlink /w/.git"
    )


@pytest.mark.parametrize(
    "content", [b"gitdir: /w/main/x\n", b"gitdir: main/x", b"gitdir:\t./main//x \nmore"]
)
@requirement("plan:gitdir")
def test_what_a_git_file_names_is_read_only_too(content):
    tree = Tree("/w/.git", "/w/main/x/", "/o/")
    tree.contents[b"/w/.git"] = content
    made = plan(policy(HOST, ("/w", WRITE)), facts=tree)
    assert {carved("/w/.git"), carved("/w/main/x")} <= set(made.steps)
    lifted = plan(policy(HOST, ("/w", WRITE), ("/w/main/x", WRITE)), facts=tree)
    assert carved("/w/main/x") not in lifted.steps


@pytest.mark.parametrize(
    "content", [b"", b"gitdir: /o", b"gitdir: /no", b"gitdir: ", b"x", b"gitdir: \0"]
)
@requirement("plan:gitdir")
def test_a_git_file_that_names_nothing_writable_is_just_a_file(content):
    tree = Tree("/w/.git", "/o/")
    tree.contents[b"/w/.git"] = content
    made = plan(policy(HOST, ("/w", WRITE)), facts=tree)
    assert [step for step in made.steps if isinstance(step, Show)] == [
        *(shown("/w"), carved("/w/.git"))
    ]


@requirement("plan:gitdir")
def test_what_a_git_file_names_cannot_be_made_or_moved():
    tree = Tree("/w/.git", "/o/", links={"/w/l": "/o"})
    tree.contents[b"/w/.git"] = b"gitdir: no/such"
    made = plan(policy(HOST, ("/w", WRITE)), facts=tree)
    assert Hide(b"/w/no", False, 0o444) in made.steps
    tree.contents[b"/w/.git"] = b"gitdir: l"
    assert "crosses writable symlink /w/l" in refusal(tree, HOST, ("/w", WRITE))


@pytest.mark.parametrize("common", [b"../..\n", b"/w/main/.git", b"../../../.git/\r\n"])
@pytest.mark.parametrize("gitdir", ["/w/main/.git/worktrees/x", "/o/worktrees/x"])
@requirement("plan:commondir")
def test_the_repository_of_a_worktree_is_read_only_too(common, gitdir):
    # Its hooks and its settings are those of the worktree.
    tree = Tree("/w/t/.git", f"{gitdir}/commondir", "/w/main/.git/hooks/", "/o/")
    tree.contents[b"/w/t/.git"] = b"gitdir: %b\n" % gitdir.encode()
    tree.contents[f"{gitdir}/commondir".encode()] = common
    made = plan(policy(HOST, ("/w", WRITE), ("/w/t", WRITE)), facts=tree)
    if gitdir.startswith("/o/") and not common.startswith(b"/"):
        assert carved("/w/main/.git") not in made.steps
    else:
        assert carved("/w/main/.git") in made.steps
    lifted = policy(HOST, ("/w", WRITE), ("/w/t", WRITE), ("/w/main/.git", WRITE))
    assert carved("/w/main/.git") not in plan(lifted, facts=tree).steps


@requirement("plan:commondir")
def test_a_worktree_whose_repository_cannot_be_read_is_refused():
    tree = Tree("/w/.git", "/w/git/commondir", links={"/w/l": "/w/git"})
    tree.contents[b"/w/.git"] = b"gitdir: git\n"
    tree.contents[b"/w/git/commondir"] = b"../l"
    assert "crosses writable symlink /w/l" in refusal(tree, HOST, ("/w", WRITE))
    tree.unreadable.add(b"/w/git/commondir")
    assert "/w/git/commondir: Permission denied" in refusal(tree, HOST, ("/w", WRITE))


@requirement("plan:reference-defects")
def test_a_file_may_be_a_write_root():
    made = plan(policy(HOST, ("/f", WRITE)), facts=Tree("/f"))
    assert made.steps == (shown("/f"),)
    assert made.placeholders == ()


@requirement("plan:reference-defects")
def test_what_cannot_be_created_needs_no_placeholder():
    wanted = policy(("/", WRITE), ("/r", READ))
    ordinary = plan(wanted, facts=Tree("/r/", is_root=False))
    assert ordinary.placeholders == ()
    assert ordinary.steps == (shown("/"), carved("/r"))
    assert len(plan(wanted, facts=Tree("/r/")).placeholders) == 4


# Globs.


@requirement("plan:globs")
def test_matches_are_denied_like_entries():
    tree = Tree("/w/a.env", "/w/d/b.env", "/w/d/x", "/l.env")
    assert steps(tree, HOST, ("/w", WRITE), globs=("/w/**/*.env",)) == [
        *(shown("/w"), Hide(b"/w/a.env", False, 0), Hide(b"/w/d/b.env", False, 0))
    ]
    assert steps(tree, HOST, globs=("/no/*",)) == []
    assert steps(tree, HOST, globs=("/w/a.env/*",)) == []


@requirement("plan:globs", "plan:symlinks")
def test_matches_that_are_links():
    tree = Tree("/w/", "/d/", "/t", links={"/w/a.env": "/t", "/d/b.env": "/t", "/d/c.env": "no"})
    assert steps(tree, HOST, globs=("/d/*.env",)) == [Hide(b"/t", False, 0)]
    assert "crosses writable symlink /w/a.env" in refusal(
        tree, HOST, ("/w", WRITE), globs=("/w/*.env",)
    )


@requirement("plan:globs", "plan:symlinks")
def test_the_fixed_prefix_of_a_glob_may_be_a_link_that_cannot_be_changed():
    tree = Tree("/t/a.env", "/w/", links={"/l": "t", "/w/l": "/t"})
    assert steps(tree, HOST, globs=("/l/*.env",)) == [Hide(b"/t/a.env", False, 0)]
    assert "crosses writable symlink /w/l" in refusal(
        tree, HOST, ("/w", WRITE), globs=("/w/l/*.env",)
    )


# The law.

NAMES = st.sampled_from(["a", "b", ".git"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
RULES = st.dictionaries(PATHS, st.sampled_from([READ, WRITE, DENY]), max_size=6)
TREES = st.lists(PATHS.map(lambda path: path + "/") | PATHS, max_size=10)


def seen(made: Plan, path: bytes) -> Seen:
    """What a command finds at the host's *path*; a later mount covers an earlier one."""
    found: Seen = "read" if made.shows_host else "gone"
    for step in made.steps:
        if is_within(path, step.path):
            if isinstance(step, Hide):
                # An empty directory that stands for an empty one hides nothing.
                found = "read" if step.mode == 0o555 else "closed"
            else:
                found = "write" if step.is_writable else "read"
    return found


def expected(rules: dict[bytes, Access], tree: Tree, path: bytes) -> Seen:
    """The model of 5.1 with what 5.3 and 5.4 add, over what exists."""
    there = {p: a for p, a in rules.items() if a is not WRITE or p in tree.modes}
    for root in [p for p, a in there.items() if a is WRITE and stat.S_ISDIR(tree.modes[p])]:
        for name in PROTECTED:
            place = root.rstrip(b"/") + b"/" + name
            if place not in rules:
                there[place] = READ
    for missing in [p for p in there if p not in tree.modes]:
        blocking = existing_above(tree, missing)
        if not stat.S_ISDIR(tree.modes[blocking]) and state(there, blocking) is WRITE:
            there.setdefault(blocking, READ)
    names: dict[Access | None, Seen] = {None: "gone", READ: "read", WRITE: "write", DENY: "closed"}
    return names[state(there, path)]


def state(rules: dict[bytes, Access], path: bytes) -> Access | None:
    """The access of the deepest rule; but a rule to read does not open what is denied above it."""
    found: Access | None = None
    for place in sorted((p for p in rules if is_within(path, p)), key=len):
        given = rules[place]
        if place == b"/" and given is DENY:
            continue
        if not (found is DENY and given is READ):
            found = given
    return found


def existing_above(tree: Tree, path: bytes) -> bytes:
    while path not in tree.modes:
        path = parent(path)
    return path


@given(TREES, RULES, st.sampled_from([None, READ, WRITE, DENY]))
@requirement("plan:model")
def test_a_plan_gives_each_path_what_the_model_says(names, given_rules, root):
    tree = Tree(*names)
    wanted = {path.encode(): access for path, access in given_rules.items()}
    if root is not None:
        wanted[b"/"] = root
    found = tuple(sorted(Rule(path, access) for path, access in wanted.items()))
    made = plan(Policy(True, "restricted", found), facts=tree)
    for path in tree.modes:
        if path != b"/":
            assert seen(made, path) == expected(wanted, tree, path), path


@given(TREES, RULES)
@requirement("plan:missing", "plan:metadata")
def test_nothing_restricted_can_come_to_be(names, given_rules):
    """A missing path that must not be written is covered, itself or on the way to it."""
    tree = Tree(*names)
    found = tuple(sorted(Rule(path.encode(), access) for path, access in given_rules.items()))
    made = plan(Policy(True, "restricted", (*found, Rule(b"/", READ))), facts=tree)
    for rule in found:
        is_mount = given_rules.get(existing_above(tree, rule.path).decode()) is WRITE
        if rule.path not in tree.modes and rule.access is not WRITE:
            is_file = not stat.S_ISDIR(tree.modes[existing_above(tree, rule.path)])
            assert seen(made, rule.path) != "write" or (is_file and is_mount)
    for path, is_directory in made.placeholders:
        assert path not in tree.modes
        assert tree.modes[parent(path)] == stat.S_IFDIR
        assert any(isinstance(s, Hide) and s.path == path and s.is_directory == is_directory
                   for s in made.steps)  # fmt: skip


@given(TREES, RULES)
@requirement("plan:model")
def test_no_mount_covers_a_deeper_one_before_it(names, given_rules):
    made = plan(policy(HOST, *given_rules.items()), facts=Tree(*names))
    paths = [step.path for step in made.steps]
    assert len(set(paths)) == len(paths)
    for index, path in enumerate(paths):
        assert not any(is_within(earlier, path) for earlier in paths[:index])


# On a real file system.


@requirement("plan:model", "plan:symlinks")
def test_a_real_workspace(tmp_path: Path):
    work = tmp_path / "real"
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".agents").mkdir()
    (tmp_path / "link").symlink_to("real")
    wanted = workspace_write([tmp_path / "link"], exclude_tmp=True)
    made = plan(resolve(wanted, for_process=True))
    root = os.fsencode(work)
    assert made.shows_host
    assert made.steps == (
        Show(root, is_writable=True),
        Hide(root + b"/.agents", True, 0o555),
        Hide(root + b"/.aws", True, 0o555),
        Hide(root + b"/.codex", True, 0o555),
        Show(root + b"/.git", is_writable=False),
    )
    assert made.placeholders == ((root + b"/.aws", True), (root + b"/.codex", True))


@requirement("plan:gitdir")
def test_a_real_worktree(tmp_path: Path):
    (tmp_path / "main" / ".git" / "worktrees" / "w").mkdir(parents=True)
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    wanted = workspace_write([tmp_path / "w"], writable_roots=[tmp_path / "main"])
    made = plan(resolve(wanted, for_process=True))
    assert (
        Show(os.fsencode(tmp_path / "main/.git/worktrees/w"), is_writable=False) not in made.steps
    )
    assert Show(os.fsencode(tmp_path / "main/.git"), is_writable=False) in made.steps


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@requirement("plan:reference-defects")
def test_an_ordinary_user_can_create_in_its_own_directories_alone(open_folder: Path):
    (open_folder / "own").mkdir(mode=0o555)
    os.chown(open_folder / "own", NOBODY, -1)
    (open_folder / "shared").mkdir()
    (open_folder / "shared").chmod(0o777)
    facts = FileSystemFacts()
    os.seteuid(NOBODY)
    try:
        found = {
            name: facts.can_create_in(os.fsencode(open_folder / name))
            for name in ("own", "shared", "")
        }
    finally:
        os.seteuid(0)
    # It can change the mode of its own directory.
    assert found == {"own": True, "shared": True, "": False}
    assert facts.can_create_in(os.fsencode(open_folder))
