"""Removing trees: deep ones, wide ones, and trees that change meanwhile."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from exec_server.files.operations import remove
from tests.requirements import requirement
from tests.support.trees import make_tree


def test_everything_is_removed(tmp_path):
    make_tree(os.fsencode(tmp_path / "tree"))
    remove.remove_tree(os.fsencode(tmp_path / "tree"))
    assert os.listdir(tmp_path) == []


@requirement("fs/remove:any-depth")
def test_depth_costs_no_descriptors(tmp_path):
    """The tree is deeper than the limits of descriptors, of recursion and of a path."""
    depth = 1500
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    try:
        remove.remove_tree(os.fsencode(tmp_path / "deeper"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir(tmp_path) == []


@requirement("fs/remove:never-follows")
def test_a_directory_that_is_moved_away_ends_the_removal(tmp_path, monkeypatch):
    """Otherwise the way back up would lead into another directory."""
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    empty = remove._empty

    def moving(directory: int) -> list[bytes]:
        if os.readlink(f"/proc/self/fd/{directory}").endswith("/b"):
            os.rename(tmp_path / "tree" / "a", tmp_path / "elsewhere" / "a")
            os.rename(tmp_path / "elsewhere" / "a" / "b", tmp_path / "elsewhere" / "b")
        return empty(directory)

    monkeypatch.setattr(remove, "_empty", moving)
    with pytest.raises(OSError, match="busy"):
        remove.remove_tree(os.fsencode(tmp_path / "tree"))
    assert (tmp_path / "elsewhere" / "file").exists()
    assert (tmp_path / "elsewhere" / "b").exists()


@requirement("fs/remove:never-follows")
def test_what_changes_its_kind_meanwhile_is_removed_as_what_it_is(tmp_path, monkeypatch):
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "becomes link").mkdir(parents=True)
    (tree / "becomes directory").touch()
    (tree / "vanishes").touch()
    (tree / "vanishing").mkdir()
    outside.mkdir()
    (outside / "file").touch()
    scandir = os.scandir

    class Changing:
        def __init__(self, directory: int) -> None:
            with scandir(directory) as found:
                entries = list(found)
            if any(entry.name == "vanishes" for entry in entries):
                for entry in entries:
                    entry.is_dir(follow_symlinks=False)
                (tree / "becomes link").rmdir()
                (tree / "becomes link").symlink_to(outside)
                (tree / "becomes directory").unlink()
                (tree / "becomes directory").mkdir()
                (tree / "becomes directory" / "with").touch()
                (tree / "vanishes").unlink()
                (tree / "vanishing").rmdir()
            self._entries = entries

        def __enter__(self):
            return iter(self._entries)

        def __exit__(self, *exc: object) -> None: ...

    monkeypatch.setattr("exec_server.files.operations.remove.os.scandir", Changing)
    remove.remove_tree(os.fsencode(tree))
    assert not tree.exists()
    assert (outside / "file").exists()


def test_what_cannot_be_removed_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        remove.remove_tree(os.fsencode(tmp_path / "missing"))
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"directory|links"):
        remove.remove_tree(os.fsencode(tmp_path / "link"))
    assert Path(tmp_path / "link").is_symlink()
