"""RemotePath."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exec_server.errors import InternalError, NotFound
from tests.requirements import requirement


@requirement("client/path:text")
async def test_the_text_is_as_pathlib_has_it(client):
    path = client.fs.path("/srv") / "app" / "main.tar.gz"
    assert (
        str(path) == "/srv/app/main.tar.gz" and repr(path) == "RemotePath('/srv/app/main.tar.gz')"
    )
    assert (path.name, path.stem, path.suffix) == ("main.tar.gz", "main.tar", ".gz")
    assert path.parts == ("/", "srv", "app", "main.tar.gz")
    assert path.parent == client.fs.path("/srv/app") and path.parent != path
    assert path.with_suffix(".xz").name == "main.tar.xz"
    assert path.with_name("x") == path.parent.joinpath("x")
    assert len({path, client.fs.path(str(path))}) == 1
    assert sorted([path, path.parent]) == [path.parent, path]


@requirement("client/path:text")
async def test_it_cannot_be_taken_for_a_local_path(client):
    with pytest.raises(TypeError):
        os.fspath(client.fs.path("/srv"))


@requirement("client/path:calls")
async def test_it_asks_the_server(client, tmp_path):
    root = client.fs.path(str(tmp_path))
    folder = root / "folder"
    await folder.mkdir()
    await (folder / "file").write_text("blöß")
    os.symlink("file", tmp_path / "folder" / "link")
    assert await (folder / "file").read_text() == "blöß"
    assert await (folder / "file").read_bytes() == "blöß".encode()
    assert await folder.is_dir() and not await folder.is_file()
    assert await (folder / "file").is_file() and not await (folder / "file").is_symlink()
    assert await (folder / "link").is_symlink()
    assert await (folder / "link").resolve() == folder / "file"
    assert (await (folder / "file").stat()).size == 6
    assert not await (root / "nothing").exists() and not await (root / "nothing").is_dir()
    assert sorted([path async for path in folder.iterdir()]) == [folder / "file", folder / "link"]


@requirement("client/path:calls")
async def test_it_changes_things(client, tmp_path):
    root = client.fs.path(str(tmp_path))
    await (root / "a" / "b").mkdir(parents=True)
    await (root / "a" / "b").mkdir(exist_ok=True)
    with pytest.raises(InternalError):
        await (root / "a").mkdir()
    await (root / "file").write_bytes(b"x", atomic=True)
    renamed = await (root / "file").rename("other")
    assert renamed == root / "other" and (tmp_path / "other").read_bytes() == b"x"
    assert await renamed.rename(root / "a" / "file") == root / "a" / "file"
    await (root / "a" / "file").unlink()
    await (root / "a" / "file").unlink(missing_ok=True)
    with pytest.raises(NotFound):
        await (root / "a" / "file").unlink()
    await (root / "a" / "b").rmdir()
    assert os.listdir(tmp_path / "a") == []


@requirement("client/path:glob")
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.py", "b.txt", "loop", "sub"]),
        ("*.py", ["a.py"]),
        ("sub/*", ["sub/c.py", "sub/deep"]),
        ("**/*.py", ["a.py", "sub/c.py", "sub/deep/d.py"]),
        ("*/deep/?.py", ["sub/deep/d.py"]),
        ("sub/**", ["sub/c.py", "sub/deep", "sub/deep/d.py"]),
    ],
)
async def test_glob(client, tmp_path, pattern, expected):
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in ("a.py", "b.txt", "sub/c.py", "sub/deep/d.py"):
        (tmp_path / name).write_text("")
    os.symlink(".", tmp_path / "loop")
    root = client.fs.path(str(tmp_path))
    found = sorted([str(path) async for path in root.glob(pattern)])
    assert [os.path.relpath(path, tmp_path) for path in found] == expected


@requirement("client/path:glob")
async def test_a_pattern_is_relative(client):
    with pytest.raises(ValueError, match="not a relative pattern"):
        await anext(client.fs.path("/").glob("/etc/*"))


@requirement("client/path:every-name")
async def test_names_that_are_not_utf8_and_links_that_lead_nowhere_are_listed(client, tmp_path):
    raw = os.fsencode(tmp_path)
    os.mkdir(raw + b"/\xff")
    Path(os.fsdecode(raw + b"/\xff/caf\xe9")).write_bytes(b"content")
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "again").symlink_to(".")
    (tmp_path / "locked").mkdir(mode=0o000)
    root = client.fs.path(str(tmp_path))
    names = {path.name async for path in root.iterdir()}
    assert names == {"\udcff", "plain", "dangling", "loop", "again", "locked"}
    found = {str(path): path async for path in root.glob("**/*")}
    inner = os.fsdecode(raw + b"/\xff/caf\xe9")
    assert set(found) == {f"{tmp_path}/{name}" for name in names} | {inner}
    assert await found[inner].read_bytes() == b"content"
    await found[inner].write_bytes(b"new")
    assert await found[inner].is_file()
    await found[inner].unlink()
    assert not os.listdir(raw + b"/\xff")
    assert not await found[f"{tmp_path}/dangling"].exists()


@requirement("client/path:every-name")
async def test_a_server_without_exact_names_does_not_end_a_search(client, tmp_path):
    client._session._info.capabilities.pop("fsCompleteListing")
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")
    (tmp_path / "plain").touch()
    found = [path.name async for path in client.fs.path(str(tmp_path)).glob("**/*")]
    assert "plain" in found
