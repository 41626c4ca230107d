"""fs/watch: the model that a client keeps equals the tree, also after cuts and lost notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.files.change_reports import FileWatch
from exec_server.client_urls import connect
from exec_server.errors import InvalidRequest, MethodNotFound, NotFound
from exec_server.limits import Limits
from exec_server.protocol.sandbox import read_only
from exec_server.server.serving import serve
from exec_server.sync import local as local_sync
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.fault_proxy import fault_proxy
from tests.support.tenants import principal, serving
from tests.support.wire import PATIENCE, Wire

pytestmark = pytest.mark.one_loop


def listed(root: Path) -> dict[str, str]:
    """Every path below *root*, and what it is."""
    found = {}
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(directory, name)
            is_directory = os.path.isdir(path) and not os.path.islink(path)
            found[path] = "directory" if is_directory else "file"
    return found


class Model:
    """What a client knows of a tree from the reports of its watch."""

    def __init__(self, root: Path, watch: FileWatch) -> None:
        self.root = root
        self.paths = listed(root)
        self.rescans = 0
        self._watch = watch

    async def follow(self, path: Path) -> None:
        """Take reports until *path* is there, which is made last."""
        async with asyncio.timeout(PATIENCE):
            while str(path) not in self.paths:
                await self.take()

    async def take(self) -> None:
        report = await anext(self._watch)
        for change in report.changes:
            if change.kind == "removed":
                below = f"{change.path}/"
                gone = [p for p in self.paths if p == change.path or p.startswith(below)]
                for each in gone:
                    del self.paths[each]
            else:
                self.paths[change.path] = "directory" if change.type == "directory" else "file"
        if report.rescan:
            self.rescans += 1
            self.paths = listed(self.root)

    async def settled(self) -> dict[str, str]:
        """The model after everything that has happened so far was reported."""
        mark = self.root / "the last one"
        mark.write_text("x")
        await self.follow(mark)
        return self.paths


@requirement("fs/watch:model")
async def test_the_model_equals_the_tree(client, tmp_path):
    root = tmp_path / "tree"
    (root / "old" / "deep").mkdir(parents=True)
    (root / "old" / "file").write_text("1")
    async with client.fs.watch(root) as watch:
        model = Model(root, watch)
        for number in range(50):
            subprocess.run(
                ["sh", "-c", f"mkdir -p {root}/n{number}/b/c && touch {root}/n{number}/b/c/f"],
                check=True,
            )
        (root / "old").rename(root / "new")
        (root / "new" / "deep" / "later").write_text("2")
        shutil.rmtree(root / "n1")
        (root / "n2" / "b").rename(root / "n3" / "moved")
        (root / "n3" / "moved" / "c" / "more").write_text("3")
        (root / "n4").rename(tmp_path / "outside")
        (tmp_path / "outside" / "unseen").write_text("4")
        (root / "link").symlink_to(tmp_path)
        (root / "n5" / "b" / "c" / "f").unlink()
        (root / "n5" / "b" / "c" / "f").mkdir()
        (root / "n5" / "b" / "c" / "f" / "g").write_text("5")
        assert await model.settled() == listed(root)
        # What was moved is watched under its new name.
        (root / "new" / "deep" / "last").write_text("6")
        await model.follow(root / "new" / "deep" / "last")


async def test_a_watch_without_its_block_says_what_to_write(client, tmp_path):
    with pytest.raises(TypeError, match="a watch is a block: `async with"):
        await anext(client.fs.watch(tmp_path))


@requirement("fs/watch:model")
async def test_a_checkout_between_two_trees_is_followed(client, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0"]
    subprocess.run(["git", "init", "-q", "-b", "one", root], check=True)
    for number in range(60):
        (root / f"d{number % 7}" / f"e{number}").mkdir(parents=True)
        (root / f"d{number % 7}" / f"e{number}" / "file").write_text(str(number))
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    subprocess.run([*git, "checkout", "-qb", "two"], check=True)
    shutil.rmtree(root / "d3")
    (root / "d1" / "e1" / "file").unlink()
    (root / "d1" / "e1" / "file").mkdir()
    (root / "d1" / "e1" / "file" / "inner").write_text("x")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "two"], check=True)
    async with client.fs.watch(root, ignore=[".git/"]) as watch:
        model = Model(root, watch)
        for branch in ("one", "two", "one"):
            subprocess.run([*git, "checkout", "-q", branch], check=True)
        found = await model.settled()
        git_dir = str(root / ".git")
        kept = {p: kind for p, kind in found.items() if not p.startswith(git_dir)}
        there = {p: kind for p, kind in listed(root).items() if not p.startswith(git_dir)}
        assert kept == there


@requirement("fs/watch:resume")
async def test_a_cut_loses_nothing(server, tmp_path):
    limits = Limits(recovery_pause=0.01)
    async with fault_proxy(server.url) as proxy, connect(proxy.url, limits=limits) as client:
        async with client.fs.watch(tmp_path) as watch:
            model = Model(tmp_path, watch)
            for number in range(5):
                (tmp_path / f"before{number}").mkdir()
                proxy.cut()
                (tmp_path / f"before{number}" / "after").write_text("x")
            assert await model.settled() == listed(tmp_path)
            assert model.rescans == 0


@requirement("fs/watch:resume")
async def test_numbers_go_on_and_what_is_too_old_is_a_rescan(no_leaks, tmp_path):
    async with serve(limits=Limits(watch_kept_changes=3)) as running:
        async with Wire(running.url) as wire:
            await wire.initialize()
            params = {"watchId": "w", "path": f"file://{tmp_path}"}
            begun = await wire.call("fs/watch", params)
            assert begun == {"seq": 0, "resumed": False}
            for number in range(3):
                # A directory is made in one step, which is one report.
                (tmp_path / f"f{number}").mkdir()
                event = await changed(wire)
                assert (event["watchId"], event["seq"]) == ("w", number + 1)
                assert event["changes"][0]["path"] == f"file://{tmp_path}/f{number}"
            # The second of three is still there, and the first is not.
            again = await wire.call("fs/watch", {**params, "after": 2})
            assert again == {"seq": 3, "resumed": True}
            assert (await changed(wire))["seq"] == 3
            await wire.call("fs/watch", {**params, "after": 0})
            lost = await changed(wire)
            assert lost["rescan"] == [f"file://{tmp_path}"] and lost["seq"] >= 1
            other = await wire.error("fs/watch", {**params, "recursive": False})
            assert other["message"] == "watch `w` already exists, for something else"
            await wire.call("fs/unwatch", {"watchId": "w"})
            # A server that does not know it says that anything may have changed.
            assert await wire.call("fs/watch", {**params, "after": 7}) == {
                "seq": 8,
                "resumed": False,
            }


@requirement("fs/watch:overflow")
async def test_lost_notices_are_a_rescan(client, tmp_path, monkeypatch):
    for number in range(3):
        (tmp_path / f"d{number}").mkdir()
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    async with client.fs.watch(tmp_path) as watch:
        model = Model(tmp_path, watch)
        # The agent is stopped, so that the kernel's queue overflows.
        (agent,) = agents()
        os.kill(agent, 19)
        try:
            names = [tmp_path / f"d{number}" / "file" for number in range(3)]
            for number in range(limit // 2 + 100):
                path = names[number % 3]
                path.write_text("x")
                path.unlink()
            (tmp_path / "d1" / "inner").mkdir()
            (tmp_path / "d1" / "inner" / "file").write_text("x")
        finally:
            os.kill(agent, 18)
        assert await model.settled() == listed(tmp_path)
        assert model.rescans >= 1
        (tmp_path / "d1" / "inner" / "later").write_text("x")
        await model.follow(tmp_path / "d1" / "inner" / "later")


async def changed(wire: Wire) -> dict[str, Any]:
    """The next report."""
    message = await wire.find(lambda message: message.get("method") == "fs/filesChanged")
    params: dict[str, Any] = message["params"]
    return params


def agents() -> list[int]:
    """The agents of this machine whose keeper is a child of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            above = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
            if b"agent_main" in words and above == os.getpid():
                found.append(int(entry.name))
    return found


@requirement("fs/watch:kinds")
async def test_one_file_and_one_level_can_be_watched(client, tmp_path):
    (tmp_path / "file").write_text("1")
    (tmp_path / "sub").mkdir()
    async with (
        client.fs.watch(tmp_path / "file") as one,
        client.fs.watch(tmp_path, recursive=False, ignore=["*.tmp"]) as level,
    ):
        (tmp_path / "sub" / "unseen").write_text("x")
        (tmp_path / "a.tmp").write_text("x")
        (tmp_path / "file").write_text("2")
        report = await anext(one)
        assert [tuple(change) for change in report.changes] == [
            (str(tmp_path / "file"), "modified", "file")
        ]
        seen: set[str] = set()
        while str(tmp_path / "file") not in seen:
            seen |= {change.path for change in (await anext(level)).changes}
        assert str(tmp_path / "sub" / "unseen") not in seen
        assert str(tmp_path / "a.tmp") not in seen


@requirement("fs/watch:ends")
async def test_a_watch_ends_with_its_directory(client, tmp_path):
    with pytest.raises(NotFound):
        async with client.fs.watch(tmp_path / "nope"):
            pass
    (tmp_path / "gone").mkdir()
    async with client.fs.watch(tmp_path / "gone") as watch:
        (tmp_path / "gone").rmdir()
        with pytest.raises(InvalidRequest, match="the watched directory is gone"):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await anext(watch)


@requirement("fs/watch:limits")
async def test_a_session_has_a_number_of_watches(client, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(client.fs.watch(tmp_path))
        with pytest.raises(InvalidRequest, match="at most 8 watches"):
            await stack.enter_async_context(client.fs.watch(tmp_path))


@requirement("fs/watch:limits")
async def test_too_many_directories_are_refused(no_leaks, tmp_path):
    for number in range(5):
        (tmp_path / f"d{number}").mkdir()
    async with serve(limits=Limits(watch_directories=3)) as running, connect(running.url) as client:
        with pytest.raises(InvalidRequest, match="more than 3 directories"):
            async with client.fs.watch(tmp_path):
                pass


@needs_bubblewrap
@requirement("fs/watch:sandbox")
async def test_a_watch_sees_what_its_sandbox_and_its_roots_show(no_leaks, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "other").mkdir()
    who = principal(roots=(f"{tmp_path}/app",))
    async with serving(who) as (running, _, _), connect(running.url) as client:
        with pytest.raises(Exception, match="the roots of principal"):
            async with client.fs.watch(tmp_path / "other"):
                pass
        async with client.fs.watch(tmp_path / "app") as watch:
            (tmp_path / "other" / "unseen").write_text("x")
            (tmp_path / "app" / "seen").write_text("x")
            changes = (await anext(watch)).changes
            assert {change.path for change in changes} == {str(tmp_path / "app" / "seen")}
    async with serve() as running, connect(running.url) as client:
        async with client.fs.sandboxed(read_only()).watch(tmp_path) as watch:
            (tmp_path / "other" / "seen").write_text("x")
            changes = (await anext(watch)).changes
            assert {change.path for change in changes} == {str(tmp_path / "other" / "seen")}


@requirement("fs/watch:capability")
async def test_a_server_without_it_is_not_asked(reference, tmp_path):
    async with connect(reference.url) as client:
        with pytest.raises(MethodNotFound, match="does not offer fsWatch"):
            async with client.fs.watch(tmp_path):
                pass


@requirement("fs/watch:sync")
def test_the_synchronous_client_watches(tmp_path):
    with local_sync() as client, client.fs.watch(str(tmp_path)) as watch:
        (tmp_path / "new").write_text("x")
        assert {change.path for change in next(watch).changes} == {str(tmp_path / "new")}
