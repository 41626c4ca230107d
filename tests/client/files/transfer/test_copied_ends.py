"""The beginning and the end of a changed file, copied while they are compared."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from pathlib import Path

import pytest

from exec_server.client.files.transfer import changed_parts, copied_ends, delta_download
from exec_server.client.files.transfer.changed_parts import LocalVersion
from exec_server.client.files.transfer.copied_ends import CopiedEnds
from exec_server.limits import MIB
from exec_server.protocol.file_delta import KEY_BYTES, ContentChunk
from tests.client.files.transfer.test_changed_parts import changed_in_place, edited
from tests.requirements import requirement
from tests.support.wire import PATIENCE

KIB = 1024


@pytest.fixture
def small(monkeypatch):
    """Blocks and requests are small, so that the edges of both are met."""
    monkeypatch.setattr(changed_parts, "BLOCK_BYTES", 4 * KIB)
    monkeypatch.setattr(copied_ends, "SPAN_BYTES", 32 * KIB)
    monkeypatch.setattr(copied_ends, "_FIRST_BLOCKS", 2)
    monkeypatch.setattr(copied_ends, "_WRITEBACK_BYTES", 10 * KIB)


@requirement("cli/files:delta")
async def test_what_is_said_to_be_the_same_was_copied(small, tmp_path: Path):
    for seed in range(80):
        source = random.Random(seed)
        old = source.randbytes(source.choice((1, 4 * KIB, 70 * KIB, 300 * KIB)))
        new = edited(source, old) if seed % 2 else changed_in_place(source, old)
        key = source.choice((None, source.randbytes(KEY_BYTES)))
        first, last, made = await _copied(tmp_path, old, new, key)
        assert first + last <= min(len(old), len(new))
        assert made[:first] == new[:first] == old[:first]
        assert made[len(new) - last :] == new[len(new) - last :] == old[len(old) - last :]
        if first < min(len(old), len(new)):
            assert old[first : first + 4 * KIB] != new[first : first + 4 * KIB]


async def _copied(
    folder: Path, old: bytes, new: bytes, key: bytes | None
) -> tuple[int, int, bytes]:
    for name, data in (("old", old), ("new", new), ("part", b"")):
        (folder / name).write_bytes(data)
    with (
        (folder / "old").open("rb") as before,
        (folder / "new").open("rb") as after,
        (folder / "part").open("r+b") as part,
    ):
        version = LocalVersion(after.fileno(), len(new), key=key)
        ends = CopiedEnds(version, before.fileno(), part.fileno(), key=key)
        first, last = await ends.copy()
    os.truncate(folder / "part", len(new))
    return first, last, (folder / "part").read_bytes()


class _Short:
    """A server whose file is shorter than it was, or that leaves out answers."""

    def __init__(self, size: int, *found: list[ContentChunk]) -> None:
        self.size = size
        self._found = list(found)

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        return self._found.pop(0) if self._found else []


@requirement("cli/files:delta")
@pytest.mark.parametrize("found", [[], [ContentChunk(4 * KIB, bytes(16))]], ids=["none", "wrong"])
async def test_a_server_that_answers_little_has_nothing_in_common(small, tmp_path: Path, found):
    (tmp_path / "old").write_bytes(b"x" * 100 * KIB)
    with (tmp_path / "old").open("rb") as old, (tmp_path / "part").open("w+b") as part:
        version = _Short(100 * KIB, found, found)
        ends = CopiedEnds(version, old.fileno(), part.fileno(), key=None)
        assert await ends.copy() == (0, 0)
    # A difference is found by copying, and the copy goes no further then.
    assert (tmp_path / "part").read_bytes().count(b"x") == len(found) * 4 * KIB


class _Shrunk(LocalVersion):
    """The new version is shorter when its end is asked about."""

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        found = await super().blocks(offset, length)
        return found[: len(found) // 2] if offset else found


@requirement("cli/files:delta")
async def test_the_end_of_a_version_that_gets_shorter_is_not_the_same(small, tmp_path: Path):
    """The blocks that come are those from the beginning, and the end is not looked at."""
    data = random.Random(1).randbytes(100 * KIB)
    (tmp_path / "old").write_bytes(data)
    (tmp_path / "new").write_bytes(b"x" + data[1:])
    with (
        (tmp_path / "old").open("rb") as old,
        (tmp_path / "new").open("rb") as new,
        (tmp_path / "part").open("w+b") as part,
    ):
        version = _Shrunk(new.fileno(), len(data))
        assert await CopiedEnds(version, old.fileno(), part.fileno(), key=None).copy() == (0, 0)


class _Cut(LocalVersion):
    """The old version gets shorter while the new one is asked about."""

    path: Path

    async def blocks(self, offset: int, length: int) -> list[ContentChunk]:
        found = await super().blocks(offset, length)
        os.truncate(self.path, 6 * KIB)
        return found


@requirement("cli/files:delta")
async def test_an_old_version_that_gets_shorter_is_copied_as_far_as_it_goes(
    small, tmp_path: Path, monkeypatch
):
    # All blocks of the end are looked at, of which there are more than buffers.
    monkeypatch.setattr(copied_ends, "_FIRST_BLOCKS", 20)
    data = random.Random(1).randbytes(100 * KIB)
    for name in ("old", "new"):
        (tmp_path / name).write_bytes(data)
    with (
        (tmp_path / "old").open("rb") as old,
        (tmp_path / "new").open("rb") as new,
        (tmp_path / "part").open("w+b") as part,
    ):
        version = _Cut(new.fileno(), len(data))
        version.path = tmp_path / "old"
        ends = CopiedEnds(version, old.fileno(), part.fileno(), key=None)
        assert await ends.copy() == (4 * KIB, 0)
    assert (tmp_path / "part").read_bytes()[: 4 * KIB] == data[: 4 * KIB]


@requirement("cli/files:delta")
@pytest.mark.parametrize("shares", [False, True], ids=["copied", "shared"])
@pytest.mark.parametrize("kind", ["inserted", "in places", "longer", "shorter"])
async def test_a_download_of_changes_makes_the_new_version(
    client, tmp_path: Path, monkeypatch, shares, kind
):
    """Where files can share blocks, the kernel copies, and what it has made is read again."""
    monkeypatch.setattr(delta_download, "_can_share", lambda old, part: shares)
    source = random.Random(kind)
    old = source.randbytes(25 * MIB)
    new = {
        "inserted": old[: 9 * MIB] + b"one more line\n" + old[9 * MIB :],
        "in places": b"x" + old[1 : 12 * MIB] + b"y" + old[12 * MIB + 1 :],
        "longer": old + b"the end",
        "shorter": old[: 20 * MIB],
    }[kind]
    (tmp_path / "new").write_bytes(new)
    (tmp_path / "copy").write_bytes(old)
    os.utime(tmp_path / "copy", (1, 1))
    result = await client.fs.download(tmp_path / "new", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == new
    assert result.bytes - result.matched_bytes < 10 * MIB
    assert sorted(os.listdir(tmp_path)) == ["copy", "new"]


@requirement("cli/files:delta")
async def test_a_full_disk_is_an_error(small, tmp_path: Path):
    data = random.Random(1).randbytes(100 * KIB)
    (tmp_path / "old").write_bytes(data)
    with (tmp_path / "old").open("rb") as old, open("/dev/full", "wb") as full:
        version = LocalVersion(old.fileno(), len(data))
        with pytest.raises(OSError, match="No space left"):
            await CopiedEnds(version, old.fileno(), full.fileno(), key=None).copy()


@requirement("cli/files:delta-interrupted")
async def test_a_copy_that_is_cancelled_writes_nothing_afterwards(
    small, tmp_path: Path, monkeypatch
):
    """Its descriptors are closed then, and other files may get their numbers."""
    begun, may_go_on = threading.Event(), threading.Event()

    def slowly(fd: int, data: memoryview, offset: int) -> None:
        begun.set()
        may_go_on.wait(PATIENCE)

    monkeypatch.setattr(copied_ends, "write_at", slowly)
    data = random.Random(1).randbytes(100 * KIB)
    (tmp_path / "old").write_bytes(data)
    with (tmp_path / "old").open("rb") as old, (tmp_path / "part").open("wb") as part:
        version = LocalVersion(old.fileno(), len(data))
        ends = CopiedEnds(version, old.fileno(), part.fileno(), key=None)
        copying = asyncio.create_task(ends.copy())
        await asyncio.to_thread(begun.wait, PATIENCE)
        copying.cancel()
        await asyncio.wait({copying}, timeout=0.05)
        is_early = copying.done()
        may_go_on.set()
        await asyncio.wait({copying})
        assert copying.cancelled() and not is_early
