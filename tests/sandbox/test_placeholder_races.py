"""A placeholder that one sandbox removes while the next one begins to rely on it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from exec_server.sandbox import launch
from exec_server.sandbox.model import Access, Policy, Rule
from exec_server.sandbox.placeholders import Folder, release
from exec_server.sandbox.plan import plan
from tests.requirements import requirement

ROUNDS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(os.fsencode(tmp_path / "private"))
    made.prepare()
    return made


@requirement("sandbox/placeholders:held")
def test_a_placeholder_that_is_removed_between_two_looks_is_made_again(
    folder, tmp_path, monkeypatch
):
    path = os.fsencode(tmp_path / ".git")
    [held] = folder.hold([(path, True)])
    is_there = os.path.lexists

    def look(asked: bytes) -> bool:
        found = is_there(asked)
        if held and is_there(path):
            # Its sandbox ends just after the first look.
            release(*held.pop())
        return found

    held = [held]
    monkeypatch.setattr(os.path, "lexists", look)
    [again] = folder.hold([(path, True)])
    assert is_there(path)
    release(*again)
    assert not is_there(path)


@requirement("sandbox/placeholders:held")
def test_what_is_held_exists_however_others_come_and_go(folder, tmp_path):
    names = [(os.fsencode(tmp_path / name), True) for name in (".git", ".codex")]
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for held in folder.hold(names):
                release(*held)

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(ROUNDS):
            held = folder.hold(names)
            assert len(held) == len(names)
            assert all(os.path.isdir(path) for path, _ in names)
            for fd, marker in held:
                release(fd, marker)
    finally:
        is_over.set()
        other.join()
    assert not any(os.path.exists(path) for path, _ in names)


@pytest.mark.parametrize("access", [Access.READ, Access.DENY])
@requirement("sandbox/placeholders:held")
def test_a_placeholder_deep_in_the_workspace_is_held_by_the_next_sandbox(tmp_path, access):
    (tmp_path / "a" / "b").mkdir(parents=True)
    top, path = os.fsencode(tmp_path), os.fsencode(tmp_path / "a" / "b" / "missing")
    rules = (Rule(b"/", Access.READ), Rule(top, Access.WRITE), Rule(path, access))
    policy = Policy(is_managed=True, network="restricted", rules=rules, protects_metadata=False)
    assert path in dict(launch._mount_points(plan(policy)))
    # Another sandbox has made it, so that it seems to exist.
    Path(os.fsdecode(path)).touch()
    assert path in dict(launch._mount_points(plan(policy)))
