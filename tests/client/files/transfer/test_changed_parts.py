"""The parts of a changed file that are in its old version."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.files.transfer import changed_parts
from exec_server.client.files.transfer.changed_parts import (
    DeltaRange,
    LocalVersion,
    RemoteVersion,
    compare,
    copy_batches,
    fresh_key,
    is_worth_it,
)
from exec_server.client.files.transfer.equal_versions import RememberedVersion, is_equal
from exec_server.protocol.base64 import Blob
from exec_server.protocol.file_delta import (
    KEY_BYTES,
    MOST_RANGES,
    SPAN_BYTES,
    ContentChunk,
    SignatureResult,
    pack_chunk,
)
from tests.requirements import requirement

KIB = 1024


def changed_in_place(source: random.Random, data: bytes) -> bytes:
    """*data* with a few changes that move nothing, and perhaps a longer or a shorter end."""
    new = bytearray(data)
    for _ in range(1 + source.randrange(4)):
        start = source.randrange(len(new))
        new[start : start + 100] = source.randbytes(len(new[start : start + 100]))
    return bytes(new[: len(new) - source.choice((0, 0, 30))]) + source.randbytes(
        source.choice((0, 0, 50))
    )


def edited(source: random.Random, data: bytes) -> bytes:
    """*data* with a few insertions, removals and changes."""
    for _ in range(source.randrange(4)):
        start = source.randrange(len(data) + 1)
        end = min(len(data), start + source.choice((0, 0, 1, 1000, 100 * KIB)))
        data = data[:start] + source.randbytes(source.choice((0, 1, 50, 50 * KIB))) + data[end:]
    return data


@pytest.fixture
def small(monkeypatch):
    """Blocks and requests are small, so that the edges of both are met."""
    monkeypatch.setattr(changed_parts, "BLOCK_BYTES", 32 * KIB)
    monkeypatch.setattr(changed_parts, "SPAN_BYTES", 128 * KIB)
    monkeypatch.setattr(changed_parts, "PLACE_BYTES", 4 * KIB)
    monkeypatch.setattr(changed_parts, "LEAST_PLACES", 100 * KIB)


@requirement("cli/files:delta")
async def test_the_new_version_is_made_of_the_old_one_and_the_rest(small, tmp_path: Path):
    for seed in range(60):
        source = random.Random(seed)
        old = source.randbytes(source.choice((1, 32 * KIB, 300 * KIB, 1000 * KIB)))
        new = edited(source, old) if seed % 2 else changed_in_place(source, old)
        (tmp_path / "old").write_bytes(old)
        (tmp_path / "new").write_bytes(new)
        with (tmp_path / "old").open("rb") as before, (tmp_path / "new").open("rb") as after:
            # Older servers have no key.
            key = source.choice((None, source.randbytes(KEY_BYTES)))
            was = LocalVersion(before.fileno(), len(old), key=key)
            plain = LocalVersion(after.fileno(), len(new), key=key)
            becomes = RememberedVersion(plain)
            ranges = await compare(becomes, was)
            # What was compared is remembered, and every byte counts.
            assert sum(size for _, size, _ in becomes.parts()) == len(new)
            assert await is_equal(becomes, plain)
            if len(new) == len(old):
                assert await is_equal(becomes, was) == (new == old)
            await _check_difference(source, becomes, new, tmp_path / "changed", key)
        made = bytearray(len(new))
        for start, size, origin in ranges:
            data = new[start : start + size] if origin is None else old[origin : origin + size]
            made[start : start + size] = data
        assert made == new, seed
        assert sum(item.size for item in ranges) == len(new)


@requirement("cli/files:delta")
async def test_what_has_changed_in_place_is_found_without_chunks(small, tmp_path: Path):
    source = random.Random(1)
    old = source.randbytes(1000 * KIB)
    new = bytearray(old)
    for start in range(10 * KIB, len(new), 100 * KIB):
        new[start] ^= 1
    new += b"the end"
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    with (tmp_path / "old").open("rb") as before, (tmp_path / "new").open("rb") as after:
        was = _WithoutChunks(before.fileno(), len(old))
        ranges = await compare(_WithoutChunks(after.fileno(), len(new)), was)
    missing = [item for item in ranges if item.source is None]
    # One block around each change, and the new end.
    assert [item.size for item in missing] == [4 * KIB] * 10 + [len(b"the end")]
    assert all(item.source in (None, item.start) for item in ranges)
    assert sum(item.size for item in ranges) == len(new)


class _WithoutChunks(LocalVersion):
    async def chunks(self, offset: int, length: int) -> list[ContentChunk]:
        raise AssertionError("the content is cut into chunks")


async def _check_difference(
    source: random.Random, version: RememberedVersion, new: bytes, path: Path, key: bytes | None
) -> None:
    if not new:
        return
    place = source.randrange(len(new))
    path.write_bytes(new[:place] + bytes([new[place] ^ 1]) + new[place + 1 :])
    with path.open("rb") as changed:
        assert not await is_equal(version, LocalVersion(changed.fileno(), len(new), key=key))


@requirement("cli/files:delta")
def test_batches_are_as_large_as_a_request_may_be():
    ranges = [DeltaRange(n, 1, n) for n in range(MOST_RANGES + 5)]
    ranges.append(DeltaRange(len(ranges), 10, None))
    ranges.append(DeltaRange(len(ranges) + 9, SPAN_BYTES, 0))
    batches = list(copy_batches(ranges))
    assert [len(batch) for batch in batches] == [MOST_RANGES, 5, 1]
    assert is_worth_it(ranges)
    assert not is_worth_it([DeltaRange(0, 4, None), DeltaRange(4, 1, 0)])


class HostileFiles:
    """Answers every request for checksums with chunks of these sizes."""

    def __init__(self, *sizes: int) -> None:
        self._packed = b"".join(pack_chunk(ContentChunk(size, bytes(16))) for size in sizes)

    async def signature(self, path: bytes, **part: Any) -> SignatureResult:
        return SignatureResult(Blob(self._packed), "", 0, 0)


@requirement("cli/files:delta")
@pytest.mark.parametrize(
    "sizes", [(0,), (0, 4096), (5 * KIB, 5 * KIB), (1, 1, 1, 1), (2**32 - 1,)], ids=str
)
async def test_checksums_that_cannot_be_are_refused(sizes: tuple[int, ...], tmp_path: Path):
    files: Any = HostileFiles(*sizes)
    there = RemoteVersion(files, b"/x", 9 * KIB, follow_symlinks=True)
    for ask in (there.blocks, there.chunks):
        with pytest.raises(ValueError, match="server sent"):
            await ask(0, 9 * KIB)
    (tmp_path / "here").write_bytes(bytes(9 * KIB))
    with (tmp_path / "here").open("rb") as file:
        here = LocalVersion(file.fileno(), 9 * KIB)
        assert not await is_equal(RememberedVersion(there), here)
        assert not await is_equal(RememberedVersion(here), there)


class FilesOf:
    """The files of a server with these capabilities."""

    def __init__(self, *capabilities: str) -> None:
        self._capabilities = capabilities

    async def offers(self, capability: str) -> bool:
        return capability in self._capabilities


@requirement("fs/signature:key")
async def test_a_key_is_new_each_time_and_only_for_servers_that_take_one():
    older: Any = FilesOf("fsDelta")
    newer: Any = FilesOf("fsDelta", "fsDeltaKeyed")
    assert await fresh_key(older) is None
    keys = {await fresh_key(newer) for _ in range(8)}
    assert len(keys) == 8 and {len(key or b"") for key in keys} == {KEY_BYTES}


@requirement("cli/files:delta")
async def test_a_server_cannot_make_the_client_ask_for_ever():
    # One byte of each part would be taken, and the rest asked for again.
    files: Any = HostileFiles(1, SPAN_BYTES - 1)
    there = RemoteVersion(files, b"/x", 1 << 60, follow_symlinks=True)
    with pytest.raises(ValueError, match="too few"):
        await there.chunks(0, 1 << 60)
