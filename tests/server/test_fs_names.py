"""Single names: fs/getMetadata, fs/createDirectory, fs/canonicalize, fs/remove, fs/rename and
fs/setPermissions."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from tests.requirements import requirement
from tests.support.files import FAILED, INVALID, NOT_FOUND, REFUSED, code, uri
from tests.support.trees import make_tree, snapshot

MEMBERS = {"isDirectory", "isFile", "isSymlink", "size", "createdAtMs", "modifiedAtMs"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_tree(os.fsencode(tmp_path / "tree"))
    return tmp_path / "tree"


# fs/getMetadata


@requirement("fs/getMetadata:result")
async def test_metadata_is_of_what_the_path_leads_to(wire, tree):
    async def of(name, **params):
        found = await wire.call("fs/getMetadata", {"path": uri(tree / name), **params})
        assert found.keys() == MEMBERS
        return found

    for _ in range(2):
        file = await of("file")
        assert (file["isFile"], file["isDirectory"], file["isSymlink"]) == (True, False, False)
        assert (file["size"], file["modifiedAtMs"]) == (7, 1_600_000_000_000)
        assert await of("file", followSymlinks=False) == file
        assert await of("to_file") == {**file, "isSymlink": True}
        assert await of("to_link") == {**file, "isSymlink": True}
        directory = await of("to_dir")
        assert (directory["isFile"], directory["isDirectory"]) == (False, True)
        assert directory["size"] == (tree / "dir").stat().st_size
        for name in ("fifo", "socket", "to_fifo"):
            special = await of(name)
            assert (special["isFile"], special["isDirectory"]) == (False, False)


@requirement("fs/getMetadata:birth")
async def test_times_are_real_ones(wire, tmp_path):
    before = int(time.time() * 1000) - 50
    file = tmp_path / "file"
    file.touch()
    os.utime(file, ns=(0, -1_500_000))
    for params in ({}, {"followSymlinks": False}):
        for _ in range(2):
            found = await wire.call("fs/getMetadata", {"path": uri(file), **params})
            # Times are rounded down, also before 1970.
            assert found["modifiedAtMs"] == -2
            assert before <= found["createdAtMs"] <= time.time() * 1000 + 50


@requirement("fs/getMetadata:errors", "fs/nofollow:every-component")
async def test_a_link_is_refused_where_none_is_followed(wire, tree):
    refused = {"code": REFUSED, "message": "path contains a symbolic link"}
    for _ in range(2):
        for name in ("to_file", "to_dir", "to_nothing", "to_itself"):
            params = {"path": uri(tree / name), "followSymlinks": False}
            assert await wire.error("fs/getMetadata", params) == refused
        params = {"path": uri(tree / "to_dir" / "inner"), "followSymlinks": False}
        error = await wire.error("fs/getMetadata", params)
        assert error == {"code": FAILED, "message": "Not a directory (os error 20)"}


# fs/createDirectory


@requirement("fs/createDirectory:result")
async def test_parents_are_made_unless_told_otherwise(wire, tmp_path):
    deep = tmp_path / "a" / "b" / "c"
    for params in ({}, {"followSymlinks": False}):
        once = {"path": uri(deep), "recursive": False, **params}
        assert await code(wire, "fs/createDirectory", once) == NOT_FOUND
        for _ in range(2):
            assert await wire.call("fs/createDirectory", {"path": uri(deep), **params}) == {}
        assert deep.is_dir()
        assert await code(wire, "fs/createDirectory", once) == FAILED
        await wire.call("fs/remove", {"path": uri(tmp_path / "a")})


@requirement("fs/nofollow:search-only")
async def test_the_way_may_be_longer_than_one_call_can_name(wire, tmp_path):
    """Without following links, each component is opened by itself."""
    deep = os.fsencode(tmp_path) + b"/" + b"/".join([b"d" * 200] * 30)
    assert len(deep) > 4096
    params = {"path": uri(deep), "followSymlinks": False}
    assert await wire.call("fs/createDirectory", params) == {}
    inside = {**params, "path": uri(deep + b"/file")}
    assert await wire.call("fs/writeFile", {**inside, "dataBase64": "eA=="}) == {}
    assert await wire.call("fs/readFile", inside) == {"dataBase64": "eA=="}
    assert (await wire.call("fs/getMetadata", inside))["size"] == 1
    assert await wire.call("fs/remove", {**inside, "recursive": False}) == {}
    assert await code(wire, "fs/getMetadata", inside) == NOT_FOUND
    assert await wire.call("fs/remove", {"path": uri(tmp_path / ("d" * 200))}) == {}


# fs/canonicalize


@requirement("fs/canonicalize:result", "fs/canonicalize:errors")
async def test_the_canonical_path_has_no_links(wire, tree):
    async def of(name):
        return (await wire.call("fs/canonicalize", {"path": uri(tree / name)}))["path"]

    assert await of("to_link") == uri(tree / "file")
    assert await of("to_dir/sub/back/dir/inner") == uri(tree / "dir/inner")
    assert await of("to_root/to_dir/up") == uri(tree / "other")
    assert (await wire.call("fs/canonicalize", {"path": "file:///"})) == {"path": "file:///"}
    for name in ("to_nothing", "missing", "missing/below"):
        assert await code(wire, "fs/canonicalize", {"path": uri(tree / name)}) == NOT_FOUND
    for name in ("to_itself", "file/below", "to_below_file"):
        assert await code(wire, "fs/canonicalize", {"path": uri(tree / name)}) == FAILED


@requirement("fs/canonicalize:fallback")
async def test_a_path_like_a_drive_has_a_uri_of_its_own(wire):
    directory = Path("/C:")
    try:
        directory.mkdir()
    except OSError:
        pytest.skip("the root of the file system cannot be written to")
    try:
        (directory / "x").write_text("here")
        found = await wire.call("fs/canonicalize", {"path": "/C:/x"})
        assert found == {"path": "file:///%00/bad/path/L0M6L3g"}
        assert (await wire.call("fs/readFile", found))["dataBase64"] == "aGVyZQ=="
        assert await code(wire, "fs/readFile", {"path": "file:///C:/x"}) == REFUSED
    finally:
        (directory / "x").unlink()
        directory.rmdir()


# fs/remove


@requirement("fs/remove:result", "fs/remove:never-follows")
async def test_a_tree_is_removed_and_what_its_links_lead_to_is_not(wire, tree, tmp_path):
    outside = tmp_path / "outside"
    (outside / "dir").mkdir(parents=True)
    (outside / "file").write_text("stays")
    (tree / "dir" / "out").symlink_to(outside)
    (tree / "out").symlink_to(outside / "file")
    before = snapshot(os.fsencode(outside))
    assert await wire.call("fs/remove", {"path": uri(tree / "to_dir")}) == {}
    assert (tree / "dir" / "inner").exists()
    assert await wire.call("fs/remove", {"path": uri(tree), "force": False}) == {}
    assert not tree.exists()
    assert snapshot(os.fsencode(outside)) == before


@requirement("fs/remove:result")
async def test_what_is_missing_matters_only_without_force(wire, tree):
    for name in ("missing", "missing/below"):
        params = {"path": uri(tree / name)}
        assert await wire.call("fs/remove", params) == {}
        assert await code(wire, "fs/remove", {**params, "force": False}) == NOT_FOUND
    assert await code(wire, "fs/remove", {"path": uri(tree / "file/below")}) == FAILED


# fs/rename


@requirement("fs/rename:result")
async def test_renaming_moves_and_replaces(wire, tree):
    async def rename(source, destination, **params):
        return await wire.call(
            "fs/rename",
            {
                "sourcePath": uri(tree / source),
                "destinationPath": uri(tree / destination),
                **params,
            },
        )

    assert await rename("file", "empty") == {}
    assert (tree / "empty").read_bytes() == b"content"
    assert await rename("dir", "hollow") == {}
    assert (tree / "hollow" / "inner").exists()
    # A link itself is renamed, and a link itself is replaced.
    assert await rename("to_link", "moved") == {}
    assert os.readlink(tree / "moved") == "to_file"
    assert await rename("big", "to_nothing") == {}
    assert (tree / "to_nothing").is_file()
    assert not (tree / "to_nothing").is_symlink()
    assert await rename("hollow/inner", "to_dir", followSymlinks=False) == {}
    assert not (tree / "file").exists()


@requirement("fs/rename:result")
async def test_what_cannot_be_renamed_says_why(wire, tree):
    async def of(source, destination, **params):
        params = {
            "sourcePath": uri(tree / source),
            "destinationPath": uri(tree / destination),
            **params,
        }
        return await code(wire, "fs/rename", params)

    before = snapshot(os.fsencode(tree))
    assert await of("missing", "new") == NOT_FOUND
    assert await of("file", "missing/new") == NOT_FOUND
    assert await of("file", "dir") == FAILED
    assert await of("hollow", "dir") == FAILED
    assert await of("dir", "file") == FAILED
    assert await of("dir", "dir/sub/below") == REFUSED
    assert await of("dir", "dir/sub/below", overwrite=False) == REFUSED
    assert await of("to_dir/inner", "new", followSymlinks=False) == FAILED
    assert await of("file", "to_dir/new", followSymlinks=False) == FAILED
    assert await of("file", "../" * 30) == REFUSED
    assert snapshot(os.fsencode(tree)) == before


@pytest.mark.parametrize("has_renameat2", [True, False])
@requirement("fs/rename:no-overwrite")
async def test_nothing_is_overwritten_unless_wanted(wire, tree, monkeypatch, has_renameat2):
    if not has_renameat2:
        monkeypatch.setattr("exec_server.files.nowait.linux_calls.IS_LINUX", False)
    before = snapshot(os.fsencode(tree))
    for name in ("empty", "dir", "hollow", "to_file", "to_nothing", "fifo"):
        params = {
            "sourcePath": uri(tree / "file"),
            "destinationPath": uri(tree / name),
            "overwrite": False,
        }
        error = await wire.error("fs/rename", params)
        assert error == {"code": FAILED, "message": "File exists (os error 17)"}
    assert snapshot(os.fsencode(tree)) == before
    assert await wire.call("fs/rename", {**params, "destinationPath": uri(tree / "new")}) == {}
    assert (tree / "new").read_bytes() == b"content"


# fs/setPermissions


def state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return stat.S_IMODE(found.st_mode), found.st_mtime_ns, found.st_atime_ns


@pytest.mark.parametrize("follow", [None, False])
@requirement("fs/setPermissions:result")
async def test_only_what_is_given_is_set(wire, tmp_path, follow):
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o600)
    os.utime(file, ns=(123_456_789, 987_654_321))

    async def change(**params):
        params = {"path": uri(file), "followSymlinks": follow, **params}
        assert await wire.call("fs/setPermissions", params) == {}
        return state(file)

    assert await change() == (0o600, 987_654_321, 123_456_789)
    assert await change(mode=0o4711) == (0o4711, 987_654_321, 123_456_789)
    assert await change(modifiedAtMs=1500) == (0o4711, 1_500_000_000, 123_456_789)
    assert await change(accessedAtMs=-7) == (0o4711, 1_500_000_000, -7_000_000)
    assert await change(mode=0, modifiedAtMs=0, accessedAtMs=1) == (0, 0, 1_000_000)
    if os.geteuid() != 0:
        # This works although the file cannot be read any more.
        assert await change(mode=0o644) == (0o644, 0, 1_000_000)


@requirement("fs/setPermissions:result", "fs/nofollow:every-component")
async def test_permissions_are_of_the_target_or_refused(wire, tree):
    def params(name, **more):
        return {"path": uri(tree / name), "mode": 0o604, **more}

    assert await wire.call("fs/setPermissions", params("to_link")) == {}
    assert state(tree / "file")[0] == 0o604
    os.chmod(tree / "file", 0o640)
    error = await wire.error("fs/setPermissions", params("to_link", followSymlinks=False))
    assert error == {"code": REFUSED, "message": "path contains a symbolic link"}
    below = params("to_dir/inner", followSymlinks=False)
    assert await code(wire, "fs/setPermissions", below) == FAILED
    assert await code(wire, "fs/setPermissions", params("missing")) == NOT_FOUND
    assert state(tree / "file")[0] == 0o640
    # The FIFO is neither opened for reading nor waited for.
    assert await wire.call("fs/setPermissions", params("fifo", followSymlinks=False)) == {}
    assert stat.S_IMODE((tree / "fifo").stat().st_mode) == 0o604


@pytest.mark.parametrize(
    "params", [{"mode": -1}, {"mode": 0o10000}, {"mode": 1.0}, {"modifiedAtMs": 1 << 63}]
)
@requirement("fs/setPermissions:result", "fs:numbers")
async def test_modes_and_times_are_numbers_that_fit(wire, tmp_path, params):
    assert await code(wire, "fs/setPermissions", {"path": uri(tmp_path), **params}) == INVALID
