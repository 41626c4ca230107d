"""fs/signature and fs/copyRanges: checksums of parts of files, and parts copied on the server."""

from __future__ import annotations

import base64
import hashlib
import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from exec_server.protocol.file_delta import SPAN_BYTES, unpack_chunks
from exec_server.protocol.sandbox import read_only, workspace_write
from exec_server.state.content_chunks import chunks
from tests.requirements import requirement
from tests.support.backends import needs_bubblewrap
from tests.support.files import FAILED, INVALID, NOT_FOUND, REFUSED, code, uri

MIB = 1024 * 1024


@requirement("fs/signature:result")
async def test_a_signature_has_the_chunks_and_the_digest(wire, tmp_path):
    data = os.urandom(3 * MIB + 17)
    (tmp_path / "file").write_bytes(data)
    found = await wire.call("fs/signature", {"path": uri(tmp_path / "file")})
    packed = unpack_chunks(base64.b64decode(found["chunksBase64"]))
    wanted = [(len(each), hashlib.sha256(each).digest()[:16]) for each in chunks([data])]
    assert [tuple(chunk) for chunk in packed] == wanted
    assert found["digest"] == hashlib.sha256(data).hexdigest()
    assert found["size"] == len(data)
    assert found["modifiedAtMs"] == (tmp_path / "file").stat().st_mtime_ns // 1_000_000
    part = {"path": uri(tmp_path / "file"), "offset": MIB, "length": 1000, "chunks": False}
    found = await wire.call("fs/signature", part)
    assert found["digest"] == hashlib.sha256(data[MIB : MIB + 1000]).hexdigest()
    assert found["chunksBase64"] == ""
    fixed = {"path": uri(tmp_path / "file"), "blockBytes": MIB}
    listed = base64.b64decode((await wire.call("fs/signature", fixed))["chunksBase64"])
    blocks = [data[start : start + MIB] for start in range(0, len(data), MIB)]
    assert [tuple(chunk) for chunk in unpack_chunks(listed)] == [
        (len(each), hashlib.sha256(each).digest()[:16]) for each in blocks
    ]
    behind = await wire.call("fs/signature", {**part, "offset": 9 * MIB})
    assert behind["digest"] == hashlib.sha256(b"").hexdigest()


def gmac(key: bytes, data: bytes) -> bytes:
    return AESGCM(key).encrypt(bytes(12), b"", data)


@requirement("fs/signature:key")
async def test_with_a_key_the_checksums_are_those_of_gmac(wire, tmp_path):
    data, key = os.urandom(3 * MIB + 17), os.urandom(16)
    (tmp_path / "file").write_bytes(data)
    params = {"path": uri(tmp_path / "file"), "keyBase64": base64.b64encode(key).decode()}
    blocks = [data[start : start + MIB] for start in range(0, len(data), MIB)]
    for more, pieces in (({}, list(chunks([data]))), ({"blockBytes": MIB}, blocks)):
        found = await wire.call("fs/signature", {**params, **more})
        packed = unpack_chunks(base64.b64decode(found["chunksBase64"]))
        sums = [gmac(key, each) for each in pieces]
        assert [tuple(chunk) for chunk in packed] == [
            (len(each), tag) for each, tag in zip(pieces, sums, strict=True)
        ]
        assert found["digest"] == hashlib.sha256(b"".join(sums)).hexdigest()
    assert await code(wire, "fs/signature", {**params, "chunks": False}) == INVALID
    assert await code(wire, "fs/signature", {**params, "keyBase64": "AAAA"}) == INVALID


@requirement("fs/signature:refusals")
async def test_what_is_no_file_has_no_signature(wire, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    assert await code(wire, "fs/signature", {"path": uri(tmp_path)}) == REFUSED
    assert await code(wire, "fs/signature", {"path": uri(tmp_path / "fifo")}) == REFUSED
    assert await code(wire, "fs/signature", {"path": uri(tmp_path / "no")}) == NOT_FOUND
    link = {"path": uri(tmp_path / "link")}
    assert (await wire.call("fs/signature", link))["size"] == 1
    assert await code(wire, "fs/signature", {**link, "followSymlinks": False}) == FAILED
    assert await code(wire, "fs/signature", {**link, "length": SPAN_BYTES + 1}) == INVALID
    assert await code(wire, "fs/signature", {**link, "blockBytes": 1}) == INVALID


@requirement("fs/copyRanges:result")
async def test_ranges_are_copied_where_they_belong(wire, tmp_path):
    (tmp_path / "old").write_bytes(b"0123456789")
    (tmp_path / "new").write_bytes(b"..........,")
    params = {"sourcePath": uri(tmp_path / "old"), "destinationPath": uri(tmp_path / "new")}
    assert await wire.call("fs/copyRanges", {**params, "ranges": [[8, 0, 2], [0, 4, 3]]}) == {}
    assert (tmp_path / "new").read_bytes() == b"89..012...,"
    assert await wire.call("fs/copyRanges", {**params, "ranges": [[0, 20, 1]]}) == {}
    assert (tmp_path / "new").read_bytes() == b"89..012...," + bytes(9) + b"0"


@requirement("fs/copyRanges:refusals")
async def test_ranges_that_make_no_sense_are_refused(wire, tmp_path):
    (tmp_path / "old").write_bytes(b"0123456789")
    (tmp_path / "new").write_bytes(b"")
    params = {"sourcePath": uri(tmp_path / "old"), "destinationPath": uri(tmp_path / "new")}
    for wrong in ([[0, 0, 0]], [[-1, 0, 1]], [[0, 0, 1 << 63]], [[0, 0, SPAN_BYTES + 1]], [[0, 0]]):
        assert await code(wire, "fs/copyRanges", {**params, "ranges": wrong}) == INVALID
    # The source is shorter than the client believes.
    assert await code(wire, "fs/copyRanges", {**params, "ranges": [[8, 0, 5]]}) == FAILED
    same = {**params, "destinationPath": params["sourcePath"]}
    assert await code(wire, "fs/copyRanges", {**same, "ranges": [[0, 1, 1]]}) == REFUSED
    missing = {**params, "destinationPath": uri(tmp_path / "nope")}
    assert await code(wire, "fs/copyRanges", {**missing, "ranges": [[0, 0, 1]]}) == NOT_FOUND
    assert not (tmp_path / "nope").exists()


@needs_bubblewrap
@requirement("fs/copyRanges:sandbox")
async def test_both_work_within_a_sandbox(wire, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_bytes(b"0123456789")
    (tmp_path / "work" / "new").write_bytes(b"")
    old, new = uri(tmp_path / "work" / "old"), uri(tmp_path / "work" / "new")
    sandbox = workspace_write([str(tmp_path / "work")]).wire
    signature = await wire.call("fs/signature", {"path": old, "sandbox": read_only().wire})
    assert signature["digest"] == hashlib.sha256(b"0123456789").hexdigest()
    keyed = {"path": old, "keyBase64": base64.b64encode(bytes(16)).decode()}
    signature = await wire.call("fs/signature", {**keyed, "sandbox": read_only().wire})
    packed = list(unpack_chunks(base64.b64decode(signature["chunksBase64"])))
    assert packed == [(10, gmac(bytes(16), b"0123456789"))]
    ranges = {"sourcePath": old, "destinationPath": new, "ranges": [[2, 0, 3]]}
    await wire.call("fs/copyRanges", {**ranges, "sandbox": sandbox})
    assert (tmp_path / "work" / "new").read_bytes() == b"234"
    assert await code(wire, "fs/copyRanges", {**ranges, "sandbox": read_only().wire}) == FAILED
