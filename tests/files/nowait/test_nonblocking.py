"""Calls without a thread: they answer like those with one, and never wait."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.errors import RpcError
from exec_server.files.nowait import linux_calls
from exec_server.files.nowait.mounts import Mounts, Pace
from exec_server.files.nowait.nonblocking import Quick
from exec_server.files.operations import local, nofollow
from exec_server.files.operations.local import SpecialFile
from exec_server.protocol.method import NOTHING
from exec_server.protocol.paths import normalised
from tests.requirements import requirement
from tests.support.trees import make_tree, paths_in, snapshot

pytestmark = pytest.mark.skipif(
    not linux_calls.has_openat2(linux_calls.RESOLVE_CACHED),
    reason="the kernel cannot look in its cache only",
)


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path_factory) -> Iterator[Path]:
    """A directory on a disk, if the temporary directory is on one, and one in memory."""
    if request.param == "disk":
        yield tmp_path_factory.mktemp("quick")
        return
    if not os.path.ismount("/dev/shm"):
        pytest.skip("there is no file system in memory")
    folder = Path("/dev/shm") / f"quick{os.getpid()}"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def quick() -> Iterator[Quick]:
    mounts = Mounts()
    yield Quick(mounts)
    mounts.close()


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
    except OSError as exc:
        return exc.errno
    except RpcError as exc:
        return exc.code, exc.message
    return b"".join(result.parts) if hasattr(result, "parts") else result


@requirement("fs:quick-is-slow", "fs/getMetadata:result", "fs/readFile:content")
def test_what_is_known_at_once_is_what_a_thread_would_find(quick, place):
    root = os.fsencode(place / "tree")
    make_tree(root)
    answered = 0
    for name in paths_in(root):
        path = normalised(os.path.join(root, name))
        for slow, fast in (
            ((local.get_metadata, path), quick.get_metadata),
            ((nofollow.get_metadata, path), quick.get_metadata_nofollow),
            ((local.read_file, path, 1 << 30, lambda: False), quick.read_file),
        ):
            # The slow call comes first, because it fills the kernel's caches.
            expected = outcome(*slow)
            found = outcome(fast, path)
            assert found is None or found == expected, (fast, path)
            answered += found is not None
    assert answered > 100


@requirement("fs:quick-is-slow", "fs/writeFile:in-place")
def test_what_is_written_at_once_is_what_a_thread_would_write(quick, place):
    for number, name in enumerate(paths_in_some_tree(place / "names")):
        roots = [os.fsencode(place / f"{side}{number}") for side in "ab"]
        for root in roots:
            make_tree(root)
            with contextlib.suppress(OSError):
                os.stat(os.path.join(root, name))
        slow, fast = (os.path.join(root, name) for root in roots)
        if local.is_special(slow):
            # The FIFO has no reader, so it cannot be opened.
            assert quick.write_file(fast, b"x") is None
            continue
        expected = outcome(local.write_file, slow, b"written")
        found = outcome(quick.write_file, fast, b"written")
        if found is None:
            found = outcome(local.write_file, fast, b"written")
        assert found in (expected, NOTHING), name
        assert snapshot(roots[0]) == snapshot(roots[1])
        subprocess.run(["rm", "-rf", *roots], check=True)


def paths_in_some_tree(folder: Path) -> list[bytes]:
    make_tree(os.fsencode(folder))
    return [path for path in paths_in(os.fsencode(folder)) if not path.startswith(b"odd")]


@requirement("fs:quick-is-slow")
def test_large_content_is_left_to_threads(quick, place):
    path = os.fsencode(place / "large")
    Path(os.fsdecode(path)).write_bytes(bytes((1 << 20) + 1))
    assert quick.read_file(path) is None
    assert quick.write_file(path, bytes(65_537)) is None
    Path(os.fsdecode(path)).write_bytes(bytes(1 << 20))
    assert quick.read_file(path) is not None
    assert quick.write_file(path, bytes(65_536)) is not None


@requirement("fs:quick-is-slow")
def test_slow_file_systems_are_left_to_threads(place, monkeypatch):
    monkeypatch.setattr(Mounts, "pace_of", lambda mounts, device: Pace.SLOW)
    monkeypatch.setattr(Mounts, "is_plain", lambda mounts, path: False)
    careful = Quick(Mounts())
    path = os.fsencode(place / "file")
    Path(os.fsdecode(path)).write_text("x")
    assert os.stat(path)
    assert careful.get_metadata(path) is None
    assert careful.get_metadata_nofollow(path) is None
    assert careful.read_file(path) is None
    assert careful.write_file(path, b"y") is None
    assert careful.write_file(path + b"new", b"y") is None
    assert careful.open(path) is None
    with open(path, "rb") as file:
        assert careful.pace(file.fileno()) is Pace.SLOW
        assert careful.read_block(file.fileno(), 0, 1, Pace.SLOW) is None
    assert not careful.may_write(1, Pace.SLOW)
    assert Path(os.fsdecode(path)).read_text() == "x"
    assert not os.path.exists(path + b"new")


@requirement("fs:quick-is-slow")
def test_a_kernel_that_cannot_is_not_asked(place, monkeypatch):
    monkeypatch.setattr(linux_calls, "has_openat2", lambda resolve: False)
    old = Quick(Mounts())
    path = os.fsencode(place / "file")
    Path(os.fsdecode(path)).write_text("x")
    assert old.get_metadata(path) is None
    assert old.open(path) is None
    assert old.write_file(path, b"y") is None
    with open(path, "rb") as file:
        assert old.pace(file.fileno()) is Pace.SLOW


@requirement("fs/writeFile:fifo")
def test_a_fifo_is_opened_once(quick, place):
    """Opening and closing it again would be the end of file for its reader."""
    path = os.fsencode(place / "fifo")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(SpecialFile) as caught:
        quick.write_file(path, b"x")
    with pytest.raises(BlockingIOError):
        # This is not the end of file: the FIFO still has a writer.
        os.read(reader, 1)
    assert caught.value.fd is not None
    os.close(caught.value.fd)
    os.close(reader)
