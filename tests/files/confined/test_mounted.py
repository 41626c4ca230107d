"""The mount points of a helper: it matters if one is replaced, and not if one is changed."""

from __future__ import annotations

import os

import pytest

from exec_server.files.confined import mounted
from exec_server.files.confined.mounted import Mounted
from exec_server.sandbox.model import Hide, Plan, Policy, Show
from tests.requirements import requirement
from tests.support.leaks import open_descriptors


def plan(*steps) -> Plan:
    return Plan(Policy(True, "restricted"), shows_host=True, steps=steps)


@pytest.fixture
def watch(tmp_path):
    """A directory, a file in it, a missing file, and the `Mounted` of all three."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("content")
    before = open_descriptors()
    watching = Mounted(
        plan(
            Show(os.fsencode(tmp_path), is_writable=True),
            Show(os.fsencode(tmp_path / "directory"), is_writable=False),
            Hide(os.fsencode(tmp_path / "file"), is_directory=False, mode=0),
            Hide(os.fsencode(tmp_path / "missing"), is_directory=True, mode=0o555),
        )
    )
    yield watching
    watching.close()
    watching.close()
    assert open_descriptors() == before


@requirement("sandbox/files:walls")
def test_what_is_only_changed_is_still_there(watch, tmp_path):
    (tmp_path / "directory" / "new").touch()
    (tmp_path / "file").write_text("other")
    (tmp_path / "new").touch()
    assert watch.is_still_there()


@requirement("sandbox/files:walls")
@pytest.mark.parametrize("pins", [64, 0])
def test_a_file_that_is_made_anew_is_another(tmp_path, monkeypatch, pins):
    monkeypatch.setattr(mounted, "_MAX_PINS", pins)
    file = tmp_path / "file"
    file.write_text("content")
    watch = Mounted(plan(Hide(os.fsencode(file), is_directory=False, mode=0)))
    assert watch.is_still_there()
    file.unlink()
    assert not watch.is_still_there()
    file.write_text("content")
    assert not watch.is_still_there()
    watch.close()


@requirement("sandbox/files:walls")
def test_a_directory_that_is_made_anew_is_another(watch, tmp_path):
    (tmp_path / "directory").rmdir()
    (tmp_path / "directory").mkdir()
    assert not watch.is_still_there()


@requirement("sandbox/files:walls")
def test_what_was_missing_does_not_count(watch, tmp_path):
    assert watch.is_still_there()
    (tmp_path / "missing").mkdir()
    assert watch.is_still_there()
