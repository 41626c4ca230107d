"""A lock file names every package, so pip must not look for others."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["Makefile", "deploy/Containerfile"])
def test_a_lock_is_installed_without_a_search_for_newer_packages(name: str) -> None:
    # pip applies the pin of `name` to `name` alone. A package that asks for `name[extra]` made it
    # take the newest release of `name`, which has no hash in the lock.
    text = (ROOT / name).read_text()
    lines = [line for line in text.splitlines() if "--require-hashes" in line]
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []
