"""fs/watchMissing and fs/missingChanged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import requirement
from tests.support.files import INVALID, code, until, uri
from tests.support.wire import Wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no inotify")


class Watcher:
    """A connection that watches paths in a new directory."""

    def __init__(self, wire: Wire, root: Path) -> None:
        self.wire = wire
        self.root = root
        self._last_id = 0
        self._markers = 0

    async def watch(self, *missing: str, present: str | None = None) -> bool:
        self._last_id += 1
        params: dict[str, Any] = {
            "watchId": self._last_id,
            "missing": [uri(self.root / name) for name in missing],
        }
        if present is not None:
            params["present"] = uri(self.root / present)
        result = await self.wire.call("fs/watchMissing", params)
        assert result.keys() == {"watching"}
        watching: bool = result["watching"]
        return watching

    async def fired(self) -> int:
        """The id of the watch that fires."""
        message = await self.wire.find(lambda m: m.get("method") == "fs/missingChanged")
        assert message["params"].keys() == {"watchId"}
        watch_id: int = message["params"]["watchId"]
        return watch_id

    async def is_quiet(self) -> bool:
        """True if no watch has fired by the time that another change is noticed."""
        self._markers += 1
        marker = self.root / f"marker{self._markers}"
        async with Wire(self.wire.url) as other:
            await other.initialize()
            second = Watcher(other, self.root)
            assert await second.watch(marker.name)
            marker.touch()
            await second.fired()
        await self.wire.call("environment/status")
        return not self.wire.unread


@pytest.fixture
def watcher(wire: Wire, tmp_path: Path) -> Watcher:
    return Watcher(wire, tmp_path)


def touch_and_remove(root: Path) -> None:
    (root / "a").touch()
    (root / "a").unlink()


APPEARING: dict[str, Callable[[Path], Any]] = {
    "created": lambda root: (root / "a").touch(),
    "made": lambda root: (root / "a").mkdir(),
    "linked to nothing": lambda root: (root / "a").symlink_to("nothing"),
    "renamed into place": lambda root: (root / "there").rename(root / "a"),
    "created and removed": touch_and_remove,
    "its parent chmod-ed": lambda root: root.chmod(0o700),
}


@pytest.mark.parametrize("how", APPEARING)
@requirement("fs/watchMissing:fires")
async def test_what_appears_is_noticed_once(watcher, tmp_path, how):
    (tmp_path / "there").touch()
    assert await watcher.watch("a")
    APPEARING[how](tmp_path)
    assert await watcher.fired() == 1
    (tmp_path / "a").unlink(missing_ok=True) if not (tmp_path / "a").is_dir() else None
    (tmp_path / "b").touch()
    assert await watcher.is_quiet()


@requirement("fs/watchMissing:fires")
async def test_the_first_missing_ancestor_is_enough(watcher, tmp_path):
    assert await watcher.watch("x/y/z", "other")
    (tmp_path / "x").mkdir()
    assert await watcher.fired() == 1
    assert await watcher.watch("x/y/z")
    (tmp_path / "x" / "y").touch()
    assert await watcher.fired() == 2


@pytest.mark.parametrize("depth", [1, 2])
@requirement("fs/watchMissing:fires")
async def test_a_way_that_moves_is_noticed(watcher, tmp_path, depth):
    (tmp_path / "r" / "s").mkdir(parents=True)
    assert await watcher.watch("r/s/a")
    (tmp_path / "r" / "s").rename(tmp_path / "gone") if depth == 1 else (tmp_path / "r").rename(
        tmp_path / "gone"
    )
    assert await watcher.fired() == 1


CHANGING: dict[str, Callable[[Path], Any]] = {
    "written": lambda file: file.write_text("x"),
    "truncated": lambda file: os.truncate(file, 0),
    "chmod-ed": lambda file: file.chmod(0o600),
    "touched": lambda file: os.utime(file, (1, 1)),
    "renamed": lambda file: file.rename(file.parent / "elsewhere"),
    "replaced": lambda file: (file.parent / "there").rename(file),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("how", CHANGING)
@requirement("fs/watchMissing:fires")
async def test_what_is_present_is_watched_for_changes(watcher, tmp_path, how):
    (tmp_path / "there").touch()
    (tmp_path / "p").write_text("content")
    assert await watcher.watch("a", present="p")
    CHANGING[how](tmp_path / "p")
    assert await watcher.fired() == 1


@requirement("fs/watchMissing:quiet")
async def test_a_watch_is_not_disturbed_by_its_neighbours(watcher, tmp_path):
    (tmp_path / "p").mkdir()
    assert await watcher.watch("a", present="p")
    (tmp_path / "ab").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a").touch()
    (tmp_path / "p" / "a").touch()
    os.listdir(tmp_path / "p")
    assert await watcher.is_quiet()


@requirement("fs/watchMissing:refused")
async def test_what_cannot_be_watched_is_no_error(watcher, wire, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir")
    (tmp_path / "to nothing").symlink_to("nothing")
    assert not await watcher.watch()
    for name in ("file", "dir", "link", "to nothing", "file/below", "link/below", "."):
        assert not await watcher.watch(name)
        assert not await watcher.watch("missing", name)
    for present in ("missing", "link", "to nothing", "link/below"):
        assert not await watcher.watch("missing", present=present)
    names = [f"missing{number}" for number in range(65)]
    assert not await watcher.watch(*names)
    assert await watcher.watch(*names[:64])
    foreign = {"watchId": 1000, "missing": ["file://host/x"]}
    assert await wire.call("fs/watchMissing", foreign) == {"watching": False}
    foreign = {"watchId": 1001, "missing": ["file:///x"], "present": "file://host/x"}
    assert await wire.call("fs/watchMissing", foreign) == {"watching": False}
    for wrong in ({"watchId": -1}, {"missing": "x"}, {"missing": ["x"]}, {"missing": None}):
        params: dict[str, Any] = {"watchId": 2000, "missing": [], **wrong}
        assert await code(wire, "fs/watchMissing", params) == INVALID


@requirement("fs/watchMissing:ids", "fs/watchMissing:quiet")
async def test_ids_go_up_and_end_what_was_before(wire, tmp_path):
    async def watch(watch_id, *names):
        params = {"watchId": watch_id, "missing": [uri(tmp_path / name) for name in names]}
        return (await wire.call("fs/watchMissing", params))["watching"]

    watcher = Watcher(wire, tmp_path)
    assert await watch(5, "a")
    assert not await watch(5, "b")
    assert not await watch(4, "b")
    # Neither request has changed the first watch.
    (tmp_path / "a").touch()
    assert await watcher.fired() == 5
    assert await watch(6, "c")
    # The watch is refused, but it ends the one before, and its id is used.
    assert not await watch(7)
    assert not await watch(7, "d")
    (tmp_path / "c").touch()
    assert await watcher.is_quiet()
    assert await watch(8, "e")
    assert await watch((1 << 64) - 1, "f")
    (tmp_path / "e").touch()
    assert await watcher.is_quiet()
    (tmp_path / "f").touch()
    assert await watcher.fired() == (1 << 64) - 1
    assert not await watch((1 << 64) - 1, "g")


def queues() -> int:
    """The number of watches that this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += "inotify" in os.readlink(f"/proc/self/fd/{name}")
    return found


@requirement("fs/watchMissing:quiet")
async def test_a_watch_ends_with_its_connection(server, tmp_path):
    before = queues()
    async with Wire(server.url) as wire:
        await wire.initialize()
        assert await Watcher(wire, tmp_path).watch("a")
        assert queues() == before + 1
        wire.cut()
        await until(lambda: queues() == before)


@requirement("fs/watchMissing:fires")
async def test_the_answer_comes_before_the_event(watcher, tmp_path):
    """The answer that the path is watched comes before the event, however soon it changes."""
    for number in range(30):
        name = f"n{number}"
        request = await watcher.wire.request(
            "fs/watchMissing", {"watchId": number, "missing": [uri(tmp_path / name)]}
        )
        await asyncio.to_thread((tmp_path / name).touch)
        answer = await watcher.wire.receive()
        assert answer["id"] == request
        if answer["result"]["watching"]:
            assert await watcher.fired() == number
