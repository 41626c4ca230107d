"""Shortcuts say what a whole look says, whatever a command does to its own directories."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exec_server.sandbox.supervisor import attempts, judge
from exec_server.sandbox.supervisor.notifications import Call
from exec_server.sandbox.supervisor.shortcuts import Shortcuts

HERE, ARCHITECTURE = -100 & 0xFFFFFFFF, 1
NAMES = {
    1: "open",
    2: "openat",
    3: "creat",
    4: "mkdir",
    5: "unlinkat",
    6: "rename",
    7: "chmod",
    8: "lchown",
    9: "symlink",
    10: "mount",
}
NUMBERS = {name: number for number, name in NAMES.items()}
NEW = os.O_WRONLY | os.O_CREAT
FLAGS = {
    "read": os.O_RDONLY,
    "read, no link": os.O_RDONLY | os.O_NOFOLLOW,
    "write": os.O_WRONLY,
    "new": NEW | os.O_TRUNC,
    "new only": NEW | os.O_EXCL,
    "append, no link": NEW | os.O_APPEND | os.O_NOFOLLOW,
}
FOLDERS = (
    *("", "ws", "ws/sub", "ws/out", "ws/in", "ws/.git", "ws/closed", "ro", "ro/back", "hidden"),
    # They lead nowhere at first.
    *("ws/void", "ro/void", "ro/back/void", "ro/none"),
)
# What a command can do to its own directory between two calls: a link in place of something.
CHANGES = {"": "", "sub": "../ro", "file": "../ro/file", "void": "../hidden"}
LAST = ("file", "new", "link", "secret", "gone", "sub", ".git", "closed", "back", ".", "..", "")


class Tree(NamedTuple):
    """Directories with links between them, a judge of them, and the shortcuts of one command."""

    root: Path
    places: judge.Places
    shortcuts: Shortcuts

    def is_free(self, call: Call) -> bool:
        return self.shortcuts.has(call)

    def refusals(self, call: Call) -> list[str]:
        """What a whole look at *call* finds."""
        found = (
            self.places.refusal(each.path, writes=each.writes, renames=each.renames)
            for each in attempts.path_attempts(NAMES[call.number], call)
        )
        return [rule for rule in found if rule is not None]


def orders(**members: Any) -> dict[str, Any]:
    told = {"calls": NAMES, "refused": ("mount",), "architecture": ARCHITECTURE, "learns": False}
    return {**told, **members}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path.resolve()
    for folder in ("ws/sub", "ws/.git", "ws/closed", "ro", "hidden"):
        (root / folder).mkdir(parents=True)
    for file in ("ws/file", "ws/sub/file", "ws/.git/file", "ro/file", "hidden/secret"):
        (root / file).write_text("old")
    for link, target in (
        ("ws/link", "../ro/file"),
        ("ws/out", "../ro"),
        ("ws/in", "sub"),
        ("ws/gone", "../ro/new"),
        ("ro/link", "../hidden/secret"),
        ("ro/back", "../ws"),
        ("ro/gone", "nowhere"),
        ("ro/void", "../ws/void"),
    ):
        (root / link).symlink_to(target)
    base = os.fsencode(root)
    places = judge.Places(
        [
            (b"/", judge.READ, judge.OUTSIDE_WRITABLE),
            (base + b"/ws", judge.WRITE, ""),
            (base + b"/ws/.git", judge.READ, judge.PROTECTED_NAME),
            (base + b"/ws/closed", judge.CLOSED, judge.DENIED_PATH),
            (base + b"/hidden", judge.CLOSED, judge.DENIED_PATH),
        ],
        fresh=(b"/proc", b"/dev"),
    )
    return Tree(root, places, Shortcuts(orders(), places, attempts))


class Made(NamedTuple):
    """A call of this process, and the memory that it names."""

    call: Call
    memory: tuple[Any, ...]


def made(name: str, *arguments: bytes | int, architecture: int = ARCHITECTURE) -> Made:
    texts = tuple(ctypes.create_string_buffer(a) if isinstance(a, bytes) else a for a in arguments)
    numbers = [t if isinstance(t, int) else ctypes.addressof(t) for t in texts]
    numbers += [0] * (6 - len(numbers))
    fields = (0, os.getpid(), 0, NUMBERS[name], architecture, 0, *numbers)
    return Made(Call(fields), texts)


def calls_on(path: bytes, folder: int = HERE) -> Iterator[Made]:
    """Calls with *path*, which begins at the descriptor *folder* if it is relative."""
    for flags in FLAGS.values():
        yield made("openat", folder, path, flags)
    yield made("unlinkat", folder, path, 0)
    if path.startswith(b"/"):
        yield made("open", path, os.O_RDONLY)
        yield made("creat", path, 0o600)
        yield made("rename", path, path + b"2")
        yield made("symlink", b"anywhere", path)
        for name in ("mkdir", "chmod", "lchown"):
            yield made(name, path, 0o700)


def all_calls(root: Path, fd: int) -> Iterator[Made]:
    for folder in FOLDERS:
        for last in LAST:
            path = os.fsencode(f"{folder}/{last}" if folder else last)
            yield from calls_on(os.fsencode(root) + b"/" + path)
            yield from calls_on(os.fsencode(root) + b"/ro/../" + path)
            if path:
                yield from calls_on(path, fd)


def test_a_shortcut_is_never_taken_for_what_is_refused(tree):
    fd = os.open(tree.root, os.O_PATH)
    try:
        taken = 0
        for change, target in CHANGES.items():
            if change:
                path = tree.root / "ws" / change
                if path.exists():
                    path.rename(path.with_name(f"old-{change}"))
                path.symlink_to(target)
            for each in all_calls(tree.root, fd):
                if tree.is_free(each.call):
                    taken += 1
                    texts = [t.value for t in each.memory if not isinstance(t, int)]
                    assert tree.refusals(each.call) == [], (NAMES[each.call.number], texts, change)
        assert taken > 500
    finally:
        os.close(fd)


@pytest.mark.parametrize("flags", FLAGS)
def test_a_compiler_needs_no_whole_look(tree, flags):
    root = os.fsencode(tree.root)
    for path in (root + b"/ws/new.o", root + b"/ws/file", root + b"/ro/../ws/sub/new.o"):
        each = made("openat", HERE, path, FLAGS[flags])
        assert tree.is_free(each.call)
    each = made("openat", HERE, b"/dev/null", FLAGS[flags])
    assert tree.is_free(each.call)
    if "read" in flags:
        for path in (root + b"/ro/file", root + b"/ro/none", b"/no/such/folder/file"):
            for _ in range(2):
                each = made("openat", HERE, path, FLAGS[flags])
                assert tree.is_free(each.call)


def test_a_relative_path_begins_at_its_directory(tree):
    for folder, is_free in (("ws", True), ("ro", False), ("ws/.git", False)):
        fd = os.open(tree.root / folder, os.O_PATH)
        try:
            each = made("openat", fd, b"new", FLAGS["new"])
            assert tree.is_free(each.call) is is_free
        finally:
            os.close(fd)


def test_both_paths_of_a_rename_count(tree):
    ws, ro = (os.fsencode(tree.root / name) for name in ("ws", "ro"))
    for old, new, is_free in ((ws, ws, True), (ws, ro, False), (ro, ws, False)):
        each = made("rename", old + b"/file", new + b"/new")
        assert tree.is_free(each.call) is is_free


def test_there_is_no_shortcut_where_a_number_or_a_text_means_something_else(tree):
    path = os.fsencode(tree.root / "ws/new")
    each, foreign = made("creat", path), made("creat", path, architecture=ARCHITECTURE + 1)
    assert tree.is_free(each.call) and not tree.is_free(foreign.call)
    assert not tree.is_free(made("mount", path).call)
    assert not tree.is_free(made("creat", 0).call)
    learning = Shortcuts(orders(learns=True), tree.places, attempts)
    assert not learning.has(each.call)
    tree.shortcuts.end()
    assert not tree.is_free(each.call)


@pytest.mark.parametrize("before_end", [0, 1, 200, 255, 256, 257, 3000])
def test_a_text_is_read_wherever_its_page_ends(before_end):
    text = b"/" + b"x" * before_end
    pages = ctypes.create_string_buffer(4 * 4096)
    end = (ctypes.addressof(pages) // 4096 + 2) * 4096
    for start in (end - len(text) - 1, end - 1, end - len(text) // 2 - 1):
        ctypes.memmove(start, text + b"\0", len(text) + 1)
        assert attempts.text_at(os.getpid(), start) == text
