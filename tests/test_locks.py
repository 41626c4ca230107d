"""A lock file names every package, so pip must not look for others."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["Makefile", "deploy/Containerfile"])
def test_packages_of_a_lock_are_installed_without_a_search_for_newer_ones(name: str) -> None:
    # pip applies the pin of `name` to `name` alone: a package that asks for `name[extra]` made it take the newest
    # release of `name`, which has no hash in the lock, and a fresh checkout could not be installed.
    lines = [line for line in (ROOT / name).read_text().splitlines() if "--require-hashes" in line]
    assert lines
    assert [line for line in lines if "--no-deps" not in line] == []
