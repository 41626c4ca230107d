"""Patterns as in .gitignore, compared with git itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from exec_server.state.ignore_rules import IgnoreRules
from tests.requirements import requirement

PATHS = """\
a.o
sub/a.o
sub/deep/a.o
build/x
sub/build/x
docs/readme.md
docs/deep/readme.md
keep.log
other.log
a[1].txt
a1.txt
ab.txt
trailing space\x20
#hash
!bang
x/y/z/end
node_modules/p/index.js
foo/bar/baz
foo/x/bar
foobar
""".splitlines()

PATTERNS = [
    ["*.o"],
    ["/*.o"],
    ["sub/*.o"],
    ["build/"],
    ["/build"],
    ["build"],
    ["docs/**/*.md"],
    ["**/deep"],
    ["docs/**"],
    ["*.log", "!keep.log"],
    ["!keep.log", "*.log"],
    ["a[[]1].txt"],
    ["a[0-9].txt"],
    ["a[!0-9].txt"],
    ["a?.txt"],
    ["a\\[1\\].txt"],
    ["trailing space\\ "],
    ["other.log   "],
    ["# a comment", "", "\\#hash"],
    ["\\!bang"],
    ["x/**/end"],
    ["**/z/**"],
    ["node_modules"],
    ["foo/**/bar"],
    ["foo*"],
    ["*"],
    ["*", "!*/", "!*.md"],
    ["a[9-0].txt"],
    ["a[.txt"],
]


def excluded(patterns: list[str]) -> set[str]:
    rules = IgnoreRules(patterns)
    found = set()
    for path in PATHS:
        parts = path.split("/")
        above = ["/".join(parts[:index]) for index in range(1, len(parts))]
        if any(rules.excludes(each, is_directory=True) for each in above) or rules.excludes(
            path, is_directory=False
        ):
            found.add(path)
    return found


@requirement("cli/files:sync-patterns")
def test_git_excludes_the_same(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for patterns in PATTERNS:
        (tmp_path / ".gitignore").write_text("\n".join(patterns) + "\n")
        told = subprocess.run(
            ["git", "-C", tmp_path, "check-ignore", "--no-index", "-z", "--stdin"],
            input="\0".join(PATHS).encode(),
            capture_output=True,
            check=False,
        ).stdout.decode()
        assert excluded(patterns) == set(filter(None, told.split("\0"))), patterns


def test_many_stars_are_quick() -> None:
    rules = IgnoreRules(["*a" * 30 + "b"])
    assert not rules.excludes("a" * 250, is_directory=False)
