"""Searches names, and contents where ripgrep is missing, with the same rules for ignored files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from exec_server.files.agents.match_batches import MatchBatches
from exec_server.protocol.paths import to_uri
from exec_server.state.ignore_rules import IgnoreRules

# A larger file is left out. ripgrep has no such limit.
_FILE_BYTES = 256 * 1024 * 1024
_HEAD_BYTES = 64 * 1024
# The first one counts only in a repository.
_IGNORE_FILES = (b".gitignore", b".ignore", b".rgignore")
_QUIET = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Finds the matches in one line of text.
Searcher = Callable[[str], list[tuple[int, int]]]


def searcher(request: dict[str, Any]) -> Searcher:
    """The function that searches one line. Raises re.error."""
    pattern = request["pattern"]
    if request["literal"]:
        pattern = re.escape(pattern)
    if request["wholeWords"]:
        pattern = rf"(?<!\w)(?:{pattern})(?!\w)"
    compiled = re.compile(pattern, re.IGNORECASE if request["ignoreCase"] else 0)
    return lambda line: [found.span() for found in compiled.finditer(line)]


class _IgnoreLevel(NamedTuple):
    """The patterns of one directory, for paths below it."""

    above: str
    rules: IgnoreRules


class TreeSearch:
    """One search at and below *root*."""

    def __init__(self, request: dict[str, Any], root: bytes, found: MatchBatches) -> None:
        self._request = request
        self._root = root
        self._found = found
        self._globs = IgnoreRules(request["globs"])
        self._is_about_names = request["mode"] == "names"
        self._complaint = ""

    def run(self, search: Searcher) -> str:
        """Search everything; returns the first complaint, or nothing. Raises OSError and Enough."""
        root = self._root
        if not stat.S_ISDIR(os.stat(root).st_mode):
            self._look(os.path.dirname(root) or b"/", os.path.basename(root), search)
            return self._complaint
        for path in self._files(root, "", *self._above(root)):
            self._look(root, path, search)
            self._found.flush_if_due()
        return self._complaint

    def _look(self, directory: bytes, path: bytes, search: Searcher) -> None:
        full = os.path.join(directory, path)
        try:
            if self._is_about_names:
                text = path.decode("utf-8", "replace")
                if spans := search(text):
                    self._found.add(to_uri(full), line=None, text=text, ranges=spans)
            else:
                self._search_content(full, search)
        except OSError as exc:
            self._complain(full, exc)

    def _complain(self, path: bytes, exc: OSError) -> None:
        self._complaint = (
            self._complaint
            or f"{os.fsdecode(path)}: {exc.strerror}".encode("utf-8", "replace").decode()
        )

    # Names.

    def _above(self, root: bytes) -> tuple[list[_IgnoreLevel], bool]:
        """The patterns above *root*, and True if it is in a repository, whose .gitignore counts."""
        levels: list[_IgnoreLevel] = []
        directory = os.path.realpath(root)
        below = ""
        while directory != b"/":
            if os.path.exists(os.path.join(directory, b".git")):
                return levels, True
            directory, name = os.path.split(directory)
            below = f"{os.fsdecode(name)}/{below}"
            rules = _read_rules(directory, _IGNORE_FILES)
            if rules and not self._request["ignored"]:
                levels.insert(0, _IgnoreLevel(f"\0{below}", rules))
        return [], False

    def _files(
        self, directory: bytes, below: str, levels: list[_IgnoreLevel], is_in_repository: bool
    ) -> Iterator[bytes]:
        """The paths of the files to look at, below the root."""
        is_in_repository = is_in_repository or os.path.exists(os.path.join(directory, b".git"))
        if not self._request["ignored"]:
            rules = _read_rules(directory, _IGNORE_FILES[not is_in_repository :])
            levels = [*levels, _IgnoreLevel(below, rules)] if rules else levels
        try:
            with os.scandir(directory) as names:
                entries = sorted(names, key=lambda entry: entry.name)
        except OSError as exc:
            if directory == self._root:
                raise
            self._complain(directory, exc)
            return
        for entry in entries:
            path = below + os.fsdecode(entry.name)
            is_directory = entry.is_dir(follow_symlinks=False)
            if self._is_left_out(path, is_directory, levels):
                continue
            if is_directory:
                yield from self._files(entry.path, f"{path}/", levels, is_in_repository)
            elif self._is_about_names or entry.is_file(follow_symlinks=False):
                yield os.fsencode(path)

    def _is_left_out(self, path: str, is_directory: bool, levels: list[_IgnoreLevel]) -> bool:
        chosen = self._globs.verdict(path, is_directory=is_directory)
        if chosen is not None:
            return not chosen
        if not is_directory and self._globs.has_plain:
            return True
        if not self._request["hidden"] and os.path.basename(path).startswith("."):
            return True
        for above, rules in reversed(levels):
            shown = above[1:] + path if above.startswith("\0") else path[len(above) :]
            verdict = rules.verdict(shown, is_directory=is_directory)
            if verdict is not None:
                return verdict
        return False

    # Contents.

    def _search_content(self, path: bytes, search: Searcher) -> None:
        fd = os.open(path, _QUIET if path != self._root else _QUIET & ~os.O_NOFOLLOW)
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return
            if found.st_size > _FILE_BYTES:
                raise OSError(0, "the file is too large to search without ripgrep")
            data = file.read(_HEAD_BYTES)
            if b"\0" in data:
                return
            data += file.read(_FILE_BYTES)
        self._search_lines(to_uri(path), data.decode("utf-8", "replace").split("\n"), search)

    def _search_lines(self, uri: str, lines: list[str], search: Searcher) -> None:
        if lines and not lines[-1]:
            lines.pop()
        before, after = self._request["before"], self._request["after"]
        # The last line that was reported, and the last one that follows a match.
        told, wanted = -1, -1
        for number, line in enumerate(lines):
            spans = search(line)
            if spans:
                for near in range(max(told + 1, number - before), number):
                    self._tell(uri, near, lines[near], [], is_context=True)
                self._tell(uri, number, line, spans)
                told, wanted = number, number + after
            elif number <= wanted:
                self._tell(uri, number, line, [], is_context=True)
                told = number

    def _tell(
        self,
        uri: str,
        index: int,
        line: str,
        spans: list[tuple[int, int]],
        *,
        is_context: bool = False,
    ) -> None:
        text = line.rstrip("\r")
        self._found.add(uri, line=index + 1, text=text, ranges=spans, is_context=is_context)


def _read_rules(directory: bytes, names: tuple[bytes, ...]) -> IgnoreRules:
    patterns: list[str] = []
    for name in names:
        try:
            fd = os.open(os.path.join(directory, name), _QUIET)
        except OSError:
            continue
        with open(fd, encoding="utf-8", errors="surrogateescape") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                patterns += file.read(1024 * 1024).splitlines()
    return IgnoreRules(patterns)
