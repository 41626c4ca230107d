"""A restriction holds for every path of a file, also where the host has mounted it twice."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exec_server.protocol import sandbox as contexts
from exec_server.sandbox.backends import HERE
from exec_server.sandbox.host_mounts import HostMounts
from exec_server.sandbox.model import Access, Hide, Policy, Rule, Show
from exec_server.sandbox.plan import plan
from tests.requirements import requirement
from tests.sandbox.files import file_calls
from tests.sandbox.policies import at, managed, special
from tests.sandbox.test_plan import Tree
from tests.support.files import read, uri, write
from tests.support.local import connected
from tests.support.servers import start_server
from tests.support.wire import Finished, Wire

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or not HERE.bubblewrap_report.works, reason="only root can mount here"
)
pytestmark = pytest.mark.one_loop

# The server's mounts are its own, so that the test leaves none behind.
OWN_MOUNTS = ["unshare", "--mount", "--propagation", "private"]


class Bound(NamedTuple):
    wire: Wire
    root: Path
    pid: int
    numbers: Iterator[int]

    def bind(self, source: str, target: str) -> None:
        (self.root / target).mkdir(parents=True, exist_ok=True)
        inside = ["nsenter", "-t", str(self.pid), "-m", "mount", "--bind"]
        subprocess.run([*inside, str(self.root / source), str(self.root / target)], check=True)

    async def tried(self, script: str, context: object) -> bytes:
        """Everything that *script* says in the sandbox *context*."""
        argv = ["sh", "-c", script]
        name = f"p{next(self.numbers)}"
        done = await self.wire.run(name, argv, sandbox=context, cwd=uri(self.root))
        return done.stdout + done.stderr


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="bound-") as name:
        path = Path(name)
        (path / "main" / ".git" / "hooks").mkdir(parents=True)
        (path / "main" / ".git" / "config").write_text("ours")
        (path / "closed").mkdir()
        (path / "closed" / "file").write_text("the secret")
        yield path


@pytest.fixture
async def bound(root: Path) -> AsyncIterator[Bound]:
    with start_server(command=[*OWN_MOUNTS, sys.executable, "-m", "exec_server"]) as server:
        async with connected(server.url) as wire:
            yield Bound(wire, root, server.pid, itertools.count())


@needs_mounts
@requirement("security/aliases:paths")
async def test_protected_names_are_protected_at_a_second_path(bound, root):
    bound.bind("main", "alias")
    bound.bind("main/.git/hooks", "hooks")
    context = contexts.workspace_write([root / "main"]).wire
    said = await bound.tried(
        f"echo x > {root}/alias/.git/config; echo x > {root}/hooks/pre-commit; "
        f"mkdir {root}/alias/.codex; mkdir {root}/alias/.codex/x; "
        f"echo x > {root}/alias/file && echo WRITTEN",
        context,
    )
    assert said.count(b"Read-only file system") == 3
    assert b"File exists" in said
    assert b"WRITTEN" in said
    assert (root / "main" / ".git" / "config").read_text() == "ours"
    assert not list((root / "main" / ".git" / "hooks").iterdir())
    assert sorted(os.listdir(root / "main")) == [".git", "file"]


@needs_mounts
@requirement("security/aliases:paths")
async def test_closed_paths_are_closed_at_a_second_path(bound, root):
    bound.bind("closed", "alias/deep")
    entries = at(root / "main", "write"), at(root / "closed", "deny")
    context = managed(special("root", "read"), *entries)
    said = await bound.tried(f"cat {root}/closed/file; cat {root}/alias/deep/file", context)
    assert b"the secret" not in said
    assert said.count(b"Permission denied") == 2
    opened = managed(
        special("root", "read"), at(root / "closed", "deny"), at(root / "alias/deep", "read")
    )
    assert b"the secret" in await bound.tried(f"cat {root}/alias/deep/file", opened)


@needs_mounts
@pytest.mark.parametrize("around", ["read", "write"])
@requirement("security/aliases:paths")
async def test_a_mount_of_the_host_can_be_closed(bound, root, around):
    # The mount itself is still there, below what covers it.
    bound.bind("closed", "main/inside")
    entries = at(root / "main", around), at(root / "main/inside", "deny")
    context = managed(special("root", "read"), *entries)
    said = await bound.tried(f"cat {root}/main/inside/file; cat {root}/closed/file", context)
    assert b"the secret" not in said
    await bound.wire.start("w", ["cat"], sandbox=context, pipeStdin=True)
    await bound.wire.write("w", b"ready\n")
    await bound.wire.output_until("w", b"ready\n")
    shutil.rmtree(root / "closed")
    done = Finished(await bound.wire.events_until_closed("w"))
    assert b"a program outside of the sandbox" in done.stderr


@needs_mounts
@requirement("security/aliases:paths")
async def test_file_calls_are_refused_at_a_second_path(bound, root):
    bound.bind("main", "alias")
    bound.bind("closed", "alias2")
    entries = at(root, "write"), at(root / "main", "write"), at(root / "closed", "deny")
    sandbox = managed(special("root", "read"), *entries)
    wire = bound.wire
    calls: dict[str, dict[str, Any]] = {
        "fs/writeFile": {"path": uri(root / "alias/.git/config"), "dataBase64": ""},
        "fs/createDirectory": {"path": uri(root / "alias/.codex"), "recursive": True},
        "fs/writeFile new": {"path": uri(root / "alias/.aws"), "dataBase64": ""},
        "fs/readFile": {"path": uri(root / "alias2/file")},
    }
    for name, params in calls.items():
        assert await file_calls.outcome(wire, name, params, sandbox) != file_calls.OK, name
    await write(wire, root / "alias" / "file", b"1", sandbox=sandbox)
    assert await read(wire, root / "main" / "file") == b"1"
    assert sorted(os.listdir(root / "main")) == [".git", "file"]


@requirement("security/aliases:paths")
def test_a_plan_follows_restrictions_to_their_other_paths():
    tree = Tree("/w/.git/", "/w/x/.git/", "/s/", "/a/", "/b/")
    tree.others = {b"/w/.git": [b"/w/x/.git", b"/a"], b"/s": [b"/a", b"/w/b"], b"/w": [b"/w/x"]}
    rules = (
        Rule(b"/", Access.READ),
        Rule(b"/w", Access.WRITE),
        Rule(b"/s", Access.DENY),
    )
    made = plan(Policy(True, "restricted", rules), facts=tree)
    assert (
        Show(b"/w/x/.git", is_writable=False) in made.steps
        or Hide(b"/w/x/.git", True, 0o555) in made.steps
    )
    # It could only be read there, and that is no more than the rule gives.
    assert Show(b"/a", is_writable=False) not in made.steps
    assert Hide(b"/a", True, 0) in made.steps
    assert Hide(b"/w/x/.codex", True, 0o555) in made.steps
    assert b"/w/x" in made.anchors


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/w/a", [(b"/w/a", b"/alias/a"), (b"/w/a", b"/top/x/w/a"), (b"/w/a/b", b"/deep")]),
        (
            b"/alias/a/b",
            [(b"/alias/a/b", other) for other in (b"/w/a/b", b"/top/x/w/a/b", b"/deep")],
        ),
        (b"/top/x/wide", []),
        (b"/other/a", []),
        (b"/", []),
    ],
)
@requirement("security/aliases:paths")
def test_the_list_of_mounts_tells_the_other_paths(path, expected):
    entries = [
        (b"0:1", b"/", b"/"),
        (b"8:1", b"/x/w", b"/w"),
        (b"8:1", b"/x/w", b"/alias"),
        (b"8:1", b"/", b"/top"),
        (b"8:1", b"/x/w/a/b", b"/deep"),
        (b"0:2", b"/", b"/other"),
    ]
    assert HostMounts(entries).pairs(path) == expected
    assert HostMounts(entries[:2]).pairs(path) == []
