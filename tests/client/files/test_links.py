"""Links themselves: lstat, readlink, symlink, links in walks, and modes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest

from exec_server.errors import InvalidRequest, MethodNotFound
from exec_server.sync import local as local_sync
from tests.client.conftest import is_ours
from tests.requirements import requirement


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir(mode=0o750)
    (tmp_path / "folder" / "file").write_bytes(b"content")
    (tmp_path / "folder" / "file").chmod(0o640)
    (tmp_path / "to-file").symlink_to("folder/file")
    (tmp_path / "to-folder").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


LINKS = {"to-file", "to-folder", "dangling", "loop"}


@requirement("client/links:lstat")
async def test_a_link_is_described_itself(anywhere, tree):
    fs = anywhere.fs
    if not is_ours(anywhere):
        for call in (fs.lstat("/x"), fs.readlink("/x"), fs.symlink("a", tree / "new"),
                     fs.walk(tree, links=True)):  # fmt: skip
            with pytest.raises(MethodNotFound, match="does not offer fsLinks"):
                await call
        assert not (tree / "new").is_symlink()
        return
    for name in LINKS:
        here, there = os.lstat(tree / name), await fs.lstat(tree / name)
        assert (there.is_symlink, there.is_file, there.is_directory) == (True, False, False)
        assert (there.mode, there.size) == (here.st_mode, here.st_size)
        assert there.modified_at_ms == here.st_mtime_ns // 1_000_000
    file = await fs.lstat(tree / "to-folder" / "file")
    assert (file.is_symlink, file.is_file, file.size) == (False, True, 7)
    with pytest.raises(NotADirectoryError):
        await fs.lstat(tree / "to-folder" / "file", follow_symlinks=False)
    assert (await fs.lstat("/", follow_symlinks=False)).is_directory
    with pytest.raises(FileNotFoundError) as caught:
        await fs.lstat(tree / "nope")
    assert caught.value.filename == str(tree / "nope")


@requirement("client/links:modes")
async def test_metadata_has_modes_and_owners_if_they_are_wanted(anywhere, tree):
    here = os.stat(tree / "folder" / "file")
    for name in ("folder/file", "to-file"):
        there = await anywhere.fs.get_metadata(tree / name, attributes=True)
        assert there.is_symlink == (name == "to-file") and there.is_file
        found = (there.mode, there.uid, there.gid, there.link_count)
        if is_ours(anywhere):
            assert found == (here.st_mode, here.st_uid, here.st_gid, here.st_nlink)
            assert isinstance(there.mode, int) and stat.S_IMODE(there.mode) == 0o640
        else:
            assert set(found) == {msgspec.UNSET}
    plain = await anywhere.fs.get_metadata(tree / "folder")
    assert plain.mode is msgspec.UNSET
    if is_ours(anywhere):
        found = await anywhere.fs.get_metadata(
            tree / "folder", follow_symlinks=False, attributes=True
        )
        assert found.mode == os.stat(tree / "folder").st_mode
        with pytest.raises(InvalidRequest, match="symbolic link"):
            await anywhere.fs.get_metadata(tree / "to-file", follow_symlinks=False, attributes=True)


@requirement("client/links:readlink")
async def test_the_text_in_a_link_is_exact(client, tree):
    targets = [
        "folder/file",
        "/absolute",
        "../up",
        "nowhere",
        "ä b\n",
        os.fsdecode(b"\xff/\xfe%41"),
    ]
    for number, target in enumerate(targets):
        os.symlink(target, tree / f"{number}")
        assert await client.fs.readlink(tree / f"{number}") == target
    assert await client.fs.readlink(tree / "loop", follow_symlinks=False) == "loop"
    with pytest.raises(NotADirectoryError):
        await client.fs.readlink(tree / "to-folder" / "file", follow_symlinks=False)
    for path in (tree, tree / "folder" / "file", "/"):
        with pytest.raises(InvalidRequest) as caught:
            await client.fs.readlink(path)
        assert isinstance(caught.value, OSError) and caught.value.errno == errno.EINVAL


@requirement("client/links:symlink")
async def test_links_are_made_as_os_symlink_does(client, tree):
    targets: list[str | bytes | Path] = [
        "folder/file",
        Path("/absolute"),
        b"../up",
        b"\xff%41 ",
        "ä",
    ]
    for number, target in enumerate(targets):
        await client.fs.symlink(target, tree / f"{number}")
        assert os.readlink(tree / f"{number}") == os.fsdecode(target)
    for taken in ("folder", "dangling", "0"):
        with pytest.raises(FileExistsError) as caught:
            await client.fs.symlink("x", tree / taken)
        assert caught.value.filename == str(tree / taken)
    with pytest.raises(FileNotFoundError):
        await client.fs.symlink("x", tree / "nope" / "link")
    with pytest.raises(NotADirectoryError):
        await client.fs.symlink("x", tree / "to-folder" / "link", follow_symlinks=False)
    await client.fs.symlink("file", tree / "folder" / "link", follow_symlinks=False)
    assert (tree / "folder" / "link").read_bytes() == b"content"
    for wrong in ("", "a\0b"):
        with pytest.raises(InvalidRequest, match="target of a link"):
            await client.fs.symlink(wrong, tree / "new")
    with pytest.raises(TypeError, match=r"^target must be"):
        await client.fs.symlink(7, tree / "new")


@requirement("client/links:walk")
async def test_walks_and_listings_have_links(client, tree):
    def found(outcome):
        return {os.path.relpath(entry.path, tree): entry.kind for entry in outcome.entries}

    plain = {"folder": "directory", "folder/file": "file"}
    assert found(await client.fs.walk(tree)) == plain
    links = dict.fromkeys(LINKS, "symlink")
    assert found(await client.fs.walk(tree, links=True)) == plain | links
    followed = await client.fs.walk(tree, links=True, follow_directory_symlinks=True)
    assert found(followed) == plain | links | {"to-folder": "directory"}
    assert not followed.errors
    listed = {entry.name: entry.is_symlink for entry in await client.fs.read_directory(tree)}
    assert {name for name, is_link in listed.items() if is_link is True} == LINKS


@requirement("client/links:path")
async def test_paths_have_the_methods_of_pathlib(client, tree):
    root = client.fs.path(str(tree))
    assert [await (root / name).is_symlink() for name in sorted(LINKS)] == [True] * 4
    assert not await (root / "folder").is_symlink() and not await (root / "nope").is_symlink()
    assert not await (root / "folder" / "file" / "x").is_symlink()
    assert (await (root / "dangling").lstat()).is_symlink
    assert str(await (root / "to-file").readlink()) == "folder/file"
    await (root / "new").symlink_to("folder")
    await (root / "other").symlink_to(root / "folder")
    assert os.readlink(tree / "new") == "folder" and os.readlink(tree / "other") == f"{tree}/folder"
    found = await (root / "to-file").stat()
    assert isinstance(found.mode, int) and stat.S_ISREG(found.mode)


@requirement("client/links:path")
def test_programs_without_a_loop_have_the_same(tree):
    with local_sync() as box:
        box.fs.symlink("folder/file", tree / "new")
        assert box.fs.readlink(tree / "new") == "folder/file"
        assert box.fs.lstat(tree / "new").is_symlink
        assert str(box.fs.path(str(tree / "new")).readlink()) == "folder/file"


@requirement("fs/links:asked-for")
async def test_stock_clients_see_no_links_and_no_modes(wire, tree):
    uri = f"file://{tree}"
    found = await wire.call("fs/getMetadata", {"path": f"{uri}/to-file"})
    assert set(found) == {
        "isDirectory", "isFile", "isSymlink", "size", "createdAtMs", "modifiedAtMs",
    }  # fmt: skip
    options = {
        "maxDepth": 9, "maxDirectories": 9, "maxEntries": 99, "followDirectorySymlinks": False,
    }  # fmt: skip
    walked = await wire.call("fs/walk", {"path": uri, "options": options})
    assert {entry["kind"] for entry in walked["entries"]} == {"directory", "file"}
    assert (await wire.error("fs/readLink", {"path": f"{uri}/folder"}))["code"] == -32600
    result = await wire.call("fs/symlink", {"path": f"{uri}/new", "link": {"target": "x"}})
    assert result == {} and os.readlink(tree / "new") == "x"
    read = await wire.call("fs/readLink", {"path": f"{uri}/new"})
    assert read == {"target": "x"}
