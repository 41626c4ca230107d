"""The version has one place, and a release is cut from what is under [Unreleased]."""

from __future__ import annotations

import shutil

import pytest

import exec_server
from scripts import cut_release
from tests.requirements import requirement
from tests.support.source_tree import REPOSITORY

TWICE = """\
# Changelog

## [Unreleased]

### Security

- One
  with a second line.
- Two

### Added

- A

### Security

- Three
- One
  with a second line.

### Fixed

"""
CUT = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-11-18

### Security

- One
  with a second line.
- Two
- Three

### Added

- A
"""
OLDER = "\n## [0.1.0] - 2026-01-01\n\n### Added\n\n- All\n"


@requirement("release:version-in-one-place")
def test_every_file_that_repeats_the_version_says_what_version_py_says():
    assert set(cut_release.numbers(REPOSITORY).values()) == {exec_server.__version__}


@requirement("release:changelog")
@pytest.mark.parametrize("older", ["", OLDER])
def test_headings_are_joined_and_entries_are_there_once(older):
    assert cut_release.cut(TWICE + older.lstrip("\n"), "0.2.0", "2026-11-18") == CUT + older


@requirement("release:changelog")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (OLDER, "does not begin with"),
        ("## [Unreleased]\n" + OLDER.replace("0.1.0", "0.2.0"), "already"),
        ("## [Unreleased]\n\n### Added\n" + OLDER, "nothing is under"),
        ("## [Unreleased]\n\n- A\n" + OLDER, "no heading"),
    ],
)
def test_what_cannot_be_cut_is_refused(text, why):
    with pytest.raises(cut_release.CannotCut, match=why):
        cut_release.cut(text, "0.2.0", "2026-11-18")


@requirement("release:changelog")
def test_a_tree_is_ready_when_it_is_cut(tmp_path):
    for path in cut_release.numbers(REPOSITORY):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    page = tmp_path / "CHANGELOG.md"
    page.write_text(TWICE)
    assert len(cut_release.problems(tmp_path, "7.0.0")) == len(cut_release.REPEATED) + 2

    cut_release.set_number(tmp_path, "7.0.0")
    page.write_text(cut_release.cut(TWICE, "7.0.0", "2026-11-18"))
    assert cut_release.problems(tmp_path, "7.0.0") == []
    assert set(cut_release.numbers(tmp_path).values()) == {"7.0.0"}


@requirement("release:changelog")
def test_the_changelog_of_this_tree_can_be_cut():
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    names = cut_release.released(text)
    assert names[0] == "Unreleased"
    assert len(set(names)) == len(names)
    if cut_release.entries(text.split("## [")[1].split("\n", 1)[1]):
        assert cut_release.released(cut_release.cut(text, "999.0.0", "2026-11-18"))[1] == "999.0.0"


@pytest.mark.parametrize("words", [["two"], ["0.2.0", "--date", "tomorrow"]])
def test_wrong_words_are_refused(words, capsys):
    with pytest.raises(SystemExit):
        cut_release.main(words)
    assert "is not a" in capsys.readouterr().err
