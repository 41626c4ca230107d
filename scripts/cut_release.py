"""Make the entries under [Unreleased] the section of a release, and write its number everywhere.

    python scripts/cut_release.py 0.2.0 [--date 2026-11-18] [--check]

The number is kept in src/exec_server/version.py. Files that have to repeat it (``REPEATED``) get
it from there; `make protocol` writes it to docs/protocol. In CHANGELOG.md, headings that are twice
under [Unreleased] are joined and entries that occur twice are dropped; an empty [Unreleased] stays
for what comes next. With ``--check`` nothing is written, and the status is 1 unless the tree is
ready to be released as that version.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION_FILE = Path("src/exec_server/version.py")
CHANGELOG = Path("CHANGELOG.md")
_SOURCE = (VERSION_FILE, r'(?<=^VERSION = ")[^"]+(?=")')
# Where the number is repeated, and the pattern that finds it.
REPEATED = (
    (Path("README.md"), r"(?<=^\*Status: )\d+\.\d+\.\d+\w*"),
    (Path("deploy/kubernetes/base/registry.yaml"), r"(?<=image: exec-server:)\S+"),
    (Path("integrations/ansible_collection/galaxy.yml"), r"(?<=^version: )\S+"),
)
_RELEASE = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)
_NUMBER = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class CannotCut(Exception):
    """The tree is not ready; the text says why."""


def released(changelog: str) -> list[str]:
    """The names of the sections of *changelog*, newest first."""
    return [match["name"] for match in _RELEASE.finditer(changelog)]


def entries(section: str) -> dict[str, list[str]]:
    """The entries of one release by their heading; each is there once, in the order of the file."""
    found: dict[str, list[str]] = {}
    heading = ""
    for block in re.split(r"^(?=### |- )", section, flags=re.MULTILINE):
        if block.startswith("### "):
            heading = block.splitlines()[0]
            found.setdefault(heading, [])
        elif text := block.strip("\n"):
            if not heading:
                raise CannotCut(f"an entry has no heading: {text.splitlines()[0]}")
            if text not in found[heading]:
                found[heading].append(text)
    return {heading: texts for heading, texts in found.items() if texts}


def cut(changelog: str, version: str, date: str) -> str:
    """Return *changelog* with what is unreleased as the section of *version*."""
    names = released(changelog)
    if names[:1] != ["Unreleased"]:
        raise CannotCut("CHANGELOG.md does not begin with [Unreleased]")
    if version in names:
        raise CannotCut(f"CHANGELOG.md has a section [{version}] already")
    first, *rest = _RELEASE.finditer(changelog)
    end = rest[0].start() if rest else len(changelog)
    sections = entries(changelog[first.end() : end])
    if not sections:
        raise CannotCut("nothing is under [Unreleased]")
    body = "\n\n".join(f"{heading}\n\n" + "\n".join(texts) for heading, texts in sections.items())
    head = changelog[: first.start()]
    new = f"{head}## [Unreleased]\n\n## [{version}] - {date}\n\n{body}\n"
    return f"{new}\n{changelog[end:]}" if rest else new


def numbers(root: Path) -> dict[Path, str]:
    """The version as each file says it; ``version.py`` is the first."""
    return {path: _only(path, pattern, root).group() for path, pattern in (_SOURCE, *REPEATED)}


def set_number(root: Path, version: str) -> None:
    """Write *version* to ``version.py`` and to the files that repeat it."""
    for path, pattern in (_SOURCE, *REPEATED):
        match = _only(path, pattern, root)
        text = match.string
        (root / path).write_text(f"{text[: match.start()]}{version}{text[match.end() :]}")


def problems(root: Path, version: str) -> list[str]:
    """Why the tree cannot be released as *version*; none if it can."""
    found = [
        f"{path} says {number}, not {version}"
        for path, number in numbers(root).items()
        if number != version
    ]
    names = released((root / CHANGELOG).read_text(encoding="utf-8"))
    if version not in names:
        found.append(f"CHANGELOG.md has no section [{version}]; cut_release.py makes it")
    elif next(name for name in names if name != "Unreleased") != version:
        found.append(f"[{version}] is not the newest section of CHANGELOG.md")
    return found


def _only(path: Path, pattern: str, root: Path) -> re.Match[str]:
    matches = list(re.finditer(pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE))
    if len(matches) != 1:
        raise CannotCut(f"{path} has {len(matches)} places for the version, not one")
    return matches[0]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="the new version, for example 0.2.0")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    parser.add_argument("--date", default=today, help="the day of the release (default: today)")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is missing")
    options = parser.parse_args(words)
    if not _NUMBER.fullmatch(options.version):
        parser.error(f"{options.version!r} is not a version such as 0.2.0 or 0.3.0rc1")
    try:
        datetime.date.fromisoformat(options.date)
    except ValueError:
        parser.error(f"{options.date!r} is not a day such as 2026-11-18")
    try:
        if options.check:
            found = problems(ROOT, options.version)
            for problem in found:
                print(f"cut_release: {problem}", file=sys.stderr)
            return 1 if found else 0
        page = ROOT / CHANGELOG
        new = cut(page.read_text(encoding="utf-8"), options.version, options.date)
        set_number(ROOT, options.version)
        page.write_text(new, encoding="utf-8")
    except CannotCut as refusal:
        print(f"cut_release: {refusal}", file=sys.stderr)
        return 1
    print(f"CHANGELOG.md has [{options.version}] - {options.date}; commit it, then `make release`")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
