"""A protected path stays where it is: no directory above it can be moved away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.protocol import sandbox as contexts
from exec_server.sandbox.backends import HERE
from exec_server.sandbox.landlock import check
from exec_server.sandbox.model import Access, Policy, Rule, Unenforceable
from exec_server.sandbox.plan import plan
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.sandbox.policies import at, glob, managed, special
from tests.support.files import encoded, uri
from tests.support.servers import CHILDREN, start_server
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)

MOVER = CHILDREN / "moves_directories.py"
MOVER_ELSEWHERE = CHILDREN / "moves_from_new_namespace.py"


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in /tmp itself, which the usual policy makes writable."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="renames-") as name:
        yield Path(name)


def repository(path: Path) -> Path:
    (path / ".git" / "hooks").mkdir(parents=True)
    (path / ".git" / "config").write_text("ours")
    return path


def identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


async def moved(wire: Wire, sandbox: Any, spare: Path, *paths: Path) -> dict[str, dict[str, str]]:
    """What came of every way to move each of *paths*; none may be left out."""
    before = {path: identity(path) for path in paths}
    argv = [sys.executable, "-I", "-S", str(MOVER), str(spare), *map(str, paths)]
    done = await wire.run("p", argv, sandbox=sandbox, cwd=uri(spare))
    assert done.exit_code == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    assert {path: identity(path) for path in paths} == before
    return found


def refused(found: dict[str, dict[str, str]]) -> bool:
    return bool(found) and not any("done" in ways.values() for ways in found.values())


@requirement("security/renames:workspace")
async def test_a_workspace_deep_in_tmp_cannot_be_replaced(wire, root):
    # /tmp is writable as well, and so is everything between it and the workspace.
    workspace = repository(root / "a" / "b" / "workspace")
    context = contexts.workspace_write([workspace]).wire
    paths = workspace / ".git", workspace, workspace.parent, root / "a", root
    found = await moved(wire, context, root / "a", *paths)
    assert refused(found), found
    assert (workspace / ".git" / "config").read_text() == "ours"


@pytest.mark.parametrize("name", ["root", "nobody"])
@requirement("security/renames:workspace")
async def test_a_namespace_without_the_mounts_cannot_be_made(root, name):
    server_user = user(name)
    if server_user is None:
        pytest.skip(f"no server can run as {name} here")
    workspace = repository(root / "a" / "workspace")
    (root / "spot").mkdir()
    for path in (root, *root.rglob("*")):
        os.chown(path, server_user.uid, server_user.gid)
    context = contexts.workspace_write([workspace]).wire
    folders = {root: "a", workspace: ".git"}
    env = {"PYTHONPATH": server_user.path}
    with start_server(command=server_user.command, env=env) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            for number, (folder, moved_name) in enumerate(folders.items()):
                words = [MOVER_ELSEWHERE.read_text(), folder, root / "spot", moved_name]
                argv = [server_user.python, "-I", "-S", "-c", *map(str, words)]
                done = await wire.run(f"p{number}", argv, sandbox=context, cwd=uri(root))
                assert done.stdout == b"", done.stdout
                assert done.stderr == b"unshare: Operation not permitted\n"
    assert (workspace / ".git" / "config").read_text() == "ours"


@requirement("security/renames:workspace")
async def test_without_a_protected_path_a_directory_can_be_renamed(wire, root):
    (root / "a" / "b").mkdir(parents=True)
    context = managed(special("root", "read"), at(root, "write"))
    done = await wire.run("p", ["mv", f"{root}/a/b", f"{root}/c"], sandbox=context)
    assert done.exit_code == 0
    assert (root / "c").is_dir()


@pytest.mark.parametrize("access", ["deny", "read", "write"])
@pytest.mark.parametrize("exists", [True, False])
@requirement("security/renames:workspace")
async def test_directories_above_a_carve_out_stay(wire, root, access, exists):
    deep = root / "a" / "b" / "c"
    (deep / "there").mkdir(parents=True)
    carved = deep / ("there" if exists else "missing")
    context = managed(special("root", "read"), at(root, "write"), at(carved, access))
    paths = [deep, deep.parent, root / "a", root]
    if not exists and access == "write":
        # Nothing is mounted for it, and nothing has to be protected.
        return
    assert refused(found := await moved(wire, context, root, *paths)), found


@requirement("security/renames:workspace")
async def test_directories_above_a_match_of_a_denied_glob_stay(wire, root):
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "x.env").write_text("secret")
    context = managed(special("root", "read"), at(root, "write"), glob(f"{root}/**/*.env"))
    assert refused(found := await moved(wire, context, root, deep, root / "a", root)), found
    done = await wire.run("q", ["cat", f"{deep}/x.env"], sandbox=context)
    assert b"secret" not in done.stdout


@requirement("security/renames:workspace")
async def test_the_directory_of_a_repository_that_a_git_file_names_stays(wire, root):
    repository(root / "x" / "main")
    workspace = root / "y" / "work"
    workspace.mkdir(parents=True)
    gitdir = root / "x" / "main" / ".git"
    (workspace / ".git").write_text(f"gitdir: {gitdir}\n")
    context = contexts.workspace_write([workspace]).wire
    paths = gitdir, gitdir.parent, root / "x", workspace, root / "y"
    assert refused(found := await moved(wire, context, root, *paths)), found


@requirement("security/renames:workspace")
async def test_the_hooks_of_a_worktree_cannot_be_written(wire, root):
    # git runs the hooks of the repository for a worktree as well.
    main = repository(root / "main")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C"]
    shutil.rmtree(main / ".git")
    for words in (
        [*git, str(root), "init", "-q", "main"],
        [*git, str(main), "commit", "-q", "--allow-empty", "-m", "x"],
        [*git, str(main), "worktree", "add", "-q", str(root / "tree")],
    ):
        subprocess.run(words, check=True, capture_output=True)
    context = contexts.workspace_write([root / "tree"]).wire
    script = f"echo x > {main}/.git/hooks/post-commit; echo x >> {main}/.git/config; echo done"
    done = await wire.run("p", ["sh", "-c", script], sandbox=context, cwd=uri(root / "tree"))
    assert done.stdout == b"done\n"
    assert done.stderr.count(b"Read-only file system") == 2
    assert not (main / ".git" / "hooks" / "post-commit").exists()


@requirement("security/renames:workspace")
async def test_a_writable_root_of_the_whole_host_keeps_its_parts(wire, root):
    carved = root / "a" / "b"
    carved.mkdir(parents=True)
    context = managed(special("root", "write"), at(carved, "read"))
    assert refused(found := await moved(wire, context, root, carved, root / "a", root)), found


@requirement("security/renames:files")
async def test_file_calls_cannot_move_a_directory_above_a_carve_out(wire, root):
    workspace = repository(root / "a" / "b" / "workspace")
    context = contexts.workspace_write([workspace]).wire
    for path in (workspace, workspace.parent, root / "a"):
        before = identity(path)
        for method, params in _calls(path, root).items():
            answer = await wire.answer(
                await wire.request(method.partition(" ")[0], {**params, "sandbox": context})
            )
            assert "error" in answer or method.startswith("fs/copy"), (path, method)
        assert identity(path) == before
    assert (workspace / ".git" / "config").read_text() == "ours"
    params = {"path": uri(workspace / "new"), "dataBase64": encoded(b"x"), "sandbox": context}
    await wire.call("fs/writeFile", params)


def _calls(path: Path, root: Path) -> dict[str, dict[str, Any]]:
    copy = root / f"copy-of-{path.name}"
    source = {"sourcePath": uri(path)}
    return {
        "fs/rename": {**source, "destinationPath": uri(f"{path}-moved")},
        "fs/rename away": {**source, "destinationPath": uri(root / "moved")},
        "fs/copy": {**source, "destinationPath": uri(copy), "recursive": True},
        "fs/remove": {"path": uri(path), "recursive": True, "force": True},
        "fs/rename back": {"sourcePath": uri(copy), "destinationPath": uri(path)},
    }


@requirement("security/renames:bounded")
def test_too_many_directories_are_refused_in_words(tmp_path):
    for number in range(1001):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "closed").touch()
    top = os.fsencode(tmp_path)
    closed = [Rule(b"%b/%d/closed" % (top, number), Access.DENY) for number in range(1001)]
    rules = (Rule(b"/", Access.READ), Rule(top, Access.WRITE), *closed)
    with pytest.raises(Unenforceable, match="more than 1000 directories that could be renamed"):
        plan(Policy(is_managed=True, network="restricted", rules=rules))


@pytest.mark.parametrize("access", [Access.READ, Access.DENY])
@pytest.mark.parametrize("exists", [True, False])
@requirement("security/renames:landlock")
def test_landlock_refuses_what_a_rename_could_undo(tmp_path, access, exists):
    carved = tmp_path / "a" / "b"
    (carved if exists else carved.parent).mkdir(parents=True)
    top, path = os.fsencode(tmp_path), os.fsencode(carved)
    rules = (Rule(b"/", Access.READ), Rule(top, Access.WRITE), Rule(path, access))
    policy = Policy(is_managed=True, network="restricted", rules=rules, protects_metadata=False)
    with pytest.raises(Unenforceable, match="Landlock cannot"):
        check(plan(policy))
