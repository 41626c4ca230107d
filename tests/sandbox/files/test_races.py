"""File calls that an attacker tries to mislead: links, dots, and swaps while they run."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.sandbox import policies
from tests.sandbox.files import file_calls
from tests.support.files import FAILED, encoded, uri

pytestmark = file_calls.MARKS

ROUNDS = 8
_AT_FDCWD, _EXCHANGE = -100, 2
_libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def workspace(tmp_path):
    path: Path = tmp_path / "workspace"
    (path / "raced").mkdir(parents=True)
    (path / "raced" / "file").write_text("inside")
    (path / "source").write_text("escaped")
    return path


def seen(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (path.read_text() if path.is_file() else "", path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """*one* and *other* change places without a pause."""
    is_over = threading.Event()
    has_begun = threading.Event()
    paths = os.fsencode(one), os.fsencode(other)

    def swap() -> None:
        # It goes on until one of them is removed.
        while not is_over.is_set() and not _exchange(*paths):
            has_begun.set()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        assert has_begun.wait(60)
        yield
    finally:
        is_over.set()
        thread.join()


def _exchange(one: bytes, other: bytes) -> int:
    result: int = _libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE)
    return result


def _calls(workspace: Path) -> dict[str, dict[str, Any]]:
    raced = workspace / "raced"
    return {
        "fs/writeFile": {"path": uri(raced / "file"), "dataBase64": encoded(b"escaped")},
        "fs/writeFile atomic": {
            "path": uri(raced / "file"),
            "dataBase64": encoded(b"escaped"),
            "atomic": True,
        },
        "fs/append": {"path": uri(raced / "file"), "dataBase64": encoded(b"escaped")},
        "fs/createDirectory": {"path": uri(raced / "new" / "deep"), "recursive": True},
        "fs/copy": {
            "sourcePath": uri(workspace / "source"),
            "destinationPath": uri(raced / "copied"),
            "recursive": False,
        },
        "fs/rename": {
            "sourcePath": uri(raced / "file"),
            "destinationPath": uri(raced / "renamed"),
        },
        "fs/remove file": {"path": uri(raced / "file"), "force": True},
        "fs/setPermissions": {"path": uri(raced / "file"), "mode": 0o777},
        "fs/open replace": {"path": uri(raced / "file"), "handleId": "h", "mode": "replace"},
    }


@requirement("sandbox/files:races")
@pytest.mark.parametrize("make", [policies.workspace_write, policies.closed, policies.scoped])
async def test_nothing_lands_outside_while_a_directory_and_a_link_change_places(
    wire, workspace, outside, make
):
    link = workspace / "link"
    for name in ("closed", "fixed"):
        (workspace / name).mkdir()
    (workspace / "secret").touch()
    before = seen(outside)
    calls = _calls(workspace)
    succeeded = 0
    for _ in range(ROUNDS):
        _start_anew(workspace / "raced", link, outside)
        with swapping(workspace / "raced", link):
            # The last call may remove the directory, which ends the round.
            for name, params in (
                *calls.items(),
                *reversed(calls.items()),
                ("fs/remove", {"path": uri(workspace / "raced")}),
            ):
                found = await file_calls.outcome(wire, name, params, make(workspace))
                succeeded += found == file_calls.OK
    assert succeeded
    assert seen(outside) == before


def _start_anew(raced: Path, link: Path, outside: Path) -> None:
    for path in (raced, link):
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)
    raced.mkdir()
    (raced / "file").write_text("inside")
    link.symlink_to(outside)


@requirement("sandbox/files:races")
async def test_no_name_that_must_stay_missing_is_made_through_a_link_that_changes(wire, workspace):
    (workspace / "one").symlink_to("harmless")
    (workspace / "other").symlink_to(".codex")
    sandbox = policies.workspace_write(workspace)
    data = {"dataBase64": encoded(b"escaped")}
    ways: dict[str, dict[str, Any]] = {
        "fs/writeFile": {"path": uri(workspace / "one"), **data},
        "fs/append": {"path": uri(workspace / "one"), "create": True, **data},
        "fs/open replace": {"path": uri(workspace / "one"), "handleId": "h", "mode": "replace"},
        "fs/copy": {
            "sourcePath": uri(workspace / "source"),
            "destinationPath": uri(workspace / "one"),
            "recursive": False,
        },
    }
    found = set()
    with swapping(workspace / "one", workspace / "other"):
        for _ in range(50):
            for name, params in ways.items():
                found.add(await file_calls.outcome(wire, name, params, sandbox))
    # Both targets were met.
    assert found == {file_calls.OK, (FAILED, errno.EROFS)}
    assert not (workspace / ".codex").exists()


@requirement("sandbox/files:races")
async def test_without_a_sandbox_the_same_race_is_lost(wire, workspace, outside):
    link = workspace / "link"
    link.symlink_to(outside)
    before = seen(outside)
    params = {"path": uri(workspace / "raced" / "file"), "dataBase64": encoded(b"escaped")}
    with swapping(workspace / "raced", link):
        for _ in range(10_000):
            await wire.call("fs/writeFile", params)
            if seen(outside) != before:
                break
    assert seen(outside) != before


@requirement("sandbox/files:paths")
@pytest.mark.parametrize(
    "make", [lambda _: policies.read_only(), policies.workspace_write, policies.scoped]
)
async def test_no_spelling_of_a_path_leads_out(wire, workspace, outside, make):
    (workspace / "to-file").symlink_to(outside / "file")
    (workspace / "to-directory").symlink_to(outside)
    (workspace / "to-nothing").symlink_to(outside / "new")
    (workspace / "up").symlink_to("..")
    inside = uri(workspace)
    before = seen(outside)
    for spelling in (
        f"{inside}/to-file",
        f"{inside}/to-directory/file",
        f"{inside}/to-nothing",
        f"{inside}/up/outside/file",
        f"{inside}/../outside/file",
        f"{inside}/%2e%2e/outside/file",
        f"{inside}/raced/%2E%2E/%2e%2e/outside/file",
        f"{inside}/./raced/../../outside/file",
        f"file:///proc/self/root{outside}/file",
        f"file:///proc/self/cwd{outside}/file",
        f"file:///proc/1/root{outside}/file",
        f"file:///proc/thread-self/root{outside}/file",
        f"file:///proc/self/fd/0/../..{outside}/file",
    ):
        for name, members in (
            ("fs/writeFile", {"dataBase64": encoded(b"escaped")}),
            ("fs/append", {"dataBase64": encoded(b"escaped")}),
            ("fs/setPermissions", {"mode": 0o777}),
            ("fs/open replace", {"handleId": "h", "mode": "replace"}),
        ):
            params = {"path": spelling, **members}
            found = await file_calls.outcome(wire, name, params, make(workspace))
            assert found != file_calls.OK, (name, spelling)
    assert seen(outside) == before
