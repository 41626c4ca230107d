"""Every error of a file operation names the path that it is about."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client_urls import connect
from exec_server.errors import ExecServerError
from tests.requirements import requirement

pytestmark = pytest.mark.one_loop

Operation = Callable[[ExecServerClient, Path, Path], Awaitable[Any]]


async def _read_stream(box: ExecServerClient, path: Path, _: Path) -> None:
    async with box.fs.read_stream(path) as stream:
        await stream.read()


async def _write_stream(box: ExecServerClient, path: Path, _: Path) -> None:
    async with box.fs.write_stream(path) as stream:
        await stream.write(b"x")


async def _iterate(box: ExecServerClient, path: Path, _: Path) -> None:
    [each async for each in box.fs.path(str(path)).iterdir()]


# Operations on a path that must exist; the second path is a directory with a file and a tree.
ON_EXISTING: dict[str, Operation] = {
    "read_bytes": lambda box, path, _: box.fs.read_bytes(path),
    "read_text": lambda box, path, _: box.fs.read_text(path),
    "read_file": lambda box, path, _: box.fs.read_file(path),
    "append": lambda box, path, _: box.fs.append(path, b"1", create=False),
    "open": lambda box, path, _: box.fs.open(path),
    "read_stream": _read_stream,
    "get_metadata": lambda box, path, _: box.fs.get_metadata(path),
    "canonicalize": lambda box, path, _: box.fs.canonicalize(path),
    "remove": lambda box, path, _: box.fs.remove(path),
    "copy from": lambda box, path, base: box.fs.copy(path, base / "new"),
    "rename from": lambda box, path, base: box.fs.rename(path, base / "new"),
    "set_permissions": lambda box, path, _: box.fs.set_permissions(path, mode=0o600),
    "read_directory": lambda box, path, _: box.fs.read_directory(path),
    "walk": lambda box, path, _: box.fs.walk(path),
    "upload from": lambda box, path, base: box.fs.upload(path, base / "new"),
    "download from": lambda box, path, base: box.fs.download(path, base / "new"),
    "stat": lambda box, path, _: box.fs.path(str(path)).stat(),
    "iterdir": _iterate,
    "unlink": lambda box, path, _: box.fs.path(str(path)).unlink(),
    "cwd": lambda box, path, _: box.run(["ls"], cwd=str(path)),
}
# Operations on a path that they make.
ON_NEW: dict[str, Operation] = {
    "write_bytes": lambda box, path, _: box.fs.write_bytes(path, b"1"),
    "write_bytes, atomic": lambda box, path, _: box.fs.write_bytes(path, b"1", atomic=True),
    "write_bytes, in blocks": lambda box, path, _: box.fs.write_bytes(path, b"1" * 9_000_000),
    "append": lambda box, path, _: box.fs.append(path, b"1"),
    "open": lambda box, path, _: box.fs.open(path, mode="replace"),
    "write_stream": _write_stream,
    "create_directory": lambda box, path, _: box.fs.create_directory(path),
    "copy to": lambda box, path, base: box.fs.copy(base / "file", path),
    "rename to": lambda box, path, base: box.fs.rename(base / "file", path),
    "upload to": lambda box, path, base: box.fs.upload(base / "file", path),
    "download to": lambda box, path, base: box.fs.download(base / "file", path),
    "mkdir": lambda box, path, _: box.fs.path(str(path)).mkdir(),
}
# These work where no single file can be written.
ON_NEW_TREE: dict[str, Operation] = {
    "copy tree": lambda box, path, base: box.fs.copy(base / "tree", path, recursive=True),
    "upload tree": lambda box, path, base: box.fs.upload(base / "tree", path),
    "download tree": lambda box, path, base: box.fs.download(base / "tree", path),
}
CASES = [
    *((name, work, bad) for name, work in ON_EXISTING.items() for bad in ("none", "file/x")),
    *((name, work, bad) for name, work in ON_NEW.items() for bad in ("none/x", "file/x", "tree")),
    *((name, work, bad) for name, work in ON_NEW_TREE.items() for bad in ("file", "file/x")),
]


@requirement("client/errors:subject")
@pytest.mark.parametrize(
    ("operation", "bad"),
    [pytest.param(work, bad, id=f"{name}-{bad}") for name, work, bad in CASES],
)
async def test_an_error_names_the_path(server, tmp_path, operation, bad):
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "inner").write_text("y")
    path = tmp_path / bad
    async with connect(server.url) as box:
        with pytest.raises((ExecServerError, OSError)) as raised:
            await operation(box, path, tmp_path)
    assert repr(str(path)) in str(raised.value)


@requirement("client/errors:subject")
async def test_a_link_that_leads_to_itself_is_named_as_a_directory(server, tmp_path):
    os.symlink("loop", tmp_path / "loop")
    async with connect(server.url) as box:
        with pytest.raises(ExecServerError, match=f"cwd '{tmp_path}/loop'"):
            await box.run(["ls"], cwd=str(tmp_path / "loop"))


@requirement("client/errors:subject")
async def test_a_problem_inside_of_a_tree_is_named_on_both_sides(server, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "inner").write_text("y")
    (tmp_path / "copy" / "inner").mkdir(parents=True)
    async with connect(server.url) as box:
        for copy in (box.fs.upload, box.fs.download):
            with pytest.raises(ExecServerError) as raised:
                await copy(tmp_path / "tree", tmp_path / "copy")
            roots = f"from '{tmp_path}/tree' to '{tmp_path}/copy'"
            assert f"not everything was copied {roots}: inner: is a directory" in str(raised.value)


@requirement("client/errors:subject")
async def test_an_error_in_the_middle_of_a_stream_names_the_file(server, tmp_path):
    async with connect(server.url) as box:
        with pytest.raises(ExecServerError, match="'/dev/full'"):
            async with box.fs.write_stream("/dev/full") as stream:
                await stream.write(b"x")
        with pytest.raises(ExecServerError, match="'/proc/self/mem'"):
            async with box.fs.read_stream("/proc/self/mem") as stream:
                await stream.read()
