"""`exec-server grep`: search in files on a server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from exec_server.cli import exit_codes
from exec_server.cli.files.file_command import (
    encoded,
    file_parser,
    readable,
    reason,
    run_file_command,
    say,
    say_json,
    warn,
)
from exec_server.cli.files.targets import Servers, Target, not_remote, parse_remote
from exec_server.cli.options import add_output
from exec_server.cli.parser import Append, Flag, Parser, count
from exec_server.client.files.search_results import FileSearch, SearchHit
from exec_server.errors import ExecServerError

_EXAMPLES = """\
  Search a tree; hidden files and those of .gitignore are left out:
      exec-server grep TODO ws://127.0.0.1:41181:/srv/app

  Only in some files, without regard to case, with two lines around each match:
      exec-server grep -i -C 2 -g '*.py' 'class \\w+error' ws://127.0.0.1:41181:/srv/app

  Names of files instead of their contents:
      exec-server grep --names 'test_.*\\.py$' ws://127.0.0.1:41181:/srv/app

exit status:
  0    there was a match
  1    there was none
  2    the command line or the pattern is wrong, or the server cannot be reached
"""
_PATH, _LINE, _MATCH, _RESET = "\x1b[35m", "\x1b[32m", "\x1b[1;31m", "\x1b[0m"


def grep_command(words: list[str]) -> int:
    parser = file_parser(
        "grep",
        usage="[OPTIONS] <PATTERN> <SERVER:/PATH>...",
        description="Search in files on a server, with ripgrep if the server's machine has it.",
        examples=_EXAMPLES,
    )
    parser.add_argument("pattern", metavar="<PATTERN>", help="a regular expression")
    parser.add_argument(
        "targets", metavar="<SERVER:/PATH>", nargs="*", help="where to search, with all below"
    )
    _add_options(parser)
    _add_habits(parser)
    add_output(parser)

    async def grep(values: argparse.Namespace, servers: Servers) -> int:
        printer = _Printer(values)
        for target in _remote(parser, values):
            try:
                await _search(values, servers, target, printer)
            except ExecServerError as exc:
                text = f"{target}: {_in_one_line(reason(exc))}"
                raise exit_codes.StatusError(readable(text), exit_codes.USAGE) from exc
        printer.finish()
        return exit_codes.OK if printer.count else exit_codes.FAILED

    return run_file_command(parser, words, grep)


def _add_options(parser: Parser) -> None:
    add = parser.add_argument
    add("-i", "--ignore-case", action=Flag, help="upper and lower case are the same")
    add("-F", "--fixed-strings", action=Flag, help="the pattern is a text, not an expression")
    add("-w", "--word-regexp", action=Flag, help="match whole words only")
    add(
        "-g",
        "--glob",
        metavar="<GLOB>",
        action=Append,
        help="search only files with this name; with ! at its beginning, all others",
    )
    add("--include", dest="glob", metavar="<GLOB>", action=Append, help=argparse.SUPPRESS)
    add("-A", "--after-context", metavar="<LINES>", type=count, help="show lines after a match")
    add("-B", "--before-context", metavar="<LINES>", type=count, help="show lines before a match")
    add("-C", "--context", metavar="<LINES>", type=count, help="show lines around a match")
    add("-m", "--max-count", metavar="<COUNT>", type=count, help="stop after so many matches")
    add("-l", "--files-with-matches", action=Flag, help="print only the names of files")
    add("-c", "--count", action=Flag, help="print only the number of matches in each file")
    add(
        "-q", "--quiet", action=Flag, help="print nothing; the exit status says if there is a match"
    )
    add("--names", action=Flag, help="search the names of files, not their contents")
    add("--hidden", action=Flag, help="search hidden files, too")
    add("--no-ignore", action=Flag, help="search files that .gitignore names, too")
    add(
        "--color",
        metavar="<WHEN>",
        choices=("auto", "always", "never"),
        default="auto",
        help="when to use colours [default: auto]",
    )


def _add_habits(parser: Parser) -> None:
    """Accept what people type for other programs of this name, and what always holds here."""
    add = parser.add_argument
    add("-n", "--line-number", action=Flag, help="accepted: lines are always numbered")
    add("-r", "-R", "--recursive", action=Flag, help="accepted: directories are always searched")
    add("-E", "--extended-regexp", action=Flag, help="accepted: expressions are always extended")
    add("-H", "--with-filename", action=Flag, help=argparse.SUPPRESS)
    add("-e", "--regexp", metavar="<PATTERN>", action=Append, help="the pattern, as with grep")


def _in_one_line(text: str) -> str:
    """The first and the last line of a report: what it is about, and what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return text
    return f"{lines[0].removesuffix(':')}: {lines[-1].removeprefix('error: ')}"


def _take_pattern(parser: Parser, values: argparse.Namespace) -> None:
    """Read the pattern of `-e`, with which the first word is a target."""
    if values.regexp:
        if len(values.regexp) > 1:
            parser.error("only one -e can be given; join patterns with |")
        values.targets.insert(0, values.pattern)
        (values.pattern,) = values.regexp
    if not values.targets:
        parser.error("the following required arguments were not provided:\n  <SERVER:/PATH>...")


def _remote(parser: Parser, values: argparse.Namespace) -> list[Target]:
    _take_pattern(parser, values)
    targets = []
    for text in values.targets:
        target = parse_remote(text)
        if target is None:
            parser.error(not_remote(text))
        targets.append(target)
    return targets


async def _search(
    values: argparse.Namespace, servers: Servers, target: Target, printer: _Printer
) -> None:
    files, path = await servers.files(target), await servers.path(target)
    around = values.context or 0
    search = files.search(
        path,
        values.pattern,
        mode="names" if values.names else "content",
        literal=values.fixed_strings,
        ignore_case=values.ignore_case,
        whole_words=values.word_regexp,
        globs=values.glob or (),
        hidden=values.hidden,
        ignored=values.no_ignore,
        before=around if values.before_context is None else values.before_context,
        after=around if values.after_context is None else values.after_context,
        max_matches=1 if values.quiet else values.max_count,
    )
    async with search:
        try:
            async for hit in search:
                printer.show(hit)
        finally:
            printer.flush()
    _tell_end(search, target)


def _tell_end(search: FileSearch, target: Target) -> None:
    end = search.end
    if end is None:
        return
    if end.message:
        warn(f"{target}: {end.message}")
    if end.reason == "time":
        warn(f"{target}: the search took too long; there may be more matches")


class _Printer:
    """Prints hits as rg does: with a heading for each file on a terminal."""

    def __init__(self, values: argparse.Namespace) -> None:
        self._values = values
        self._is_terminal = sys.stdout.isatty()
        self._has_colour = values.color == "always" or (
            values.color == "auto" and self._is_terminal
        )
        self._is_json = values.output == "json"
        self._entries: list[dict[str, Any]] = []
        self._path: str | None = None
        self._line = 0
        self._in_file = 0
        self._has_context = bool(values.context or values.before_context or values.after_context)
        # True if each hit is a line of its own, without regard to those before it.
        self._is_plain = not (
            self._is_terminal
            or self._has_colour
            or self._is_json
            or self._has_context
            or values.names
            or values.quiet
            or values.count
            or values.files_with_matches
        )
        # Such lines wait for the end of the turn of the event loop; others wait in stdout.
        self._lines: list[str] = []
        self._is_flush_due = False
        self._error: OSError | None = None
        self.count = 0

    def show(self, hit: SearchHit) -> None:
        self.count += not hit.is_context
        if not self._is_flush_due:
            self._raise_error()
            # What has come is seen although the search goes on.
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self.flush)
        if self._is_plain:
            self._lines.append(f"{hit.path}:{hit.line}:{hit.text}\n")
            return
        if self._values.quiet:
            return
        if self._is_json:
            self._entries.append(_as_json(hit))
            return
        is_next_file = hit.path != self._path
        if is_next_file:
            self._finish_file()
        self._in_file += not hit.is_context
        if self._values.count:
            pass
        elif self._values.files_with_matches or hit.line is None:
            if is_next_file:
                self._say(self._coloured(hit.path, _PATH))
        else:
            self._show_line(hit, is_next_file=is_next_file)
        self._path, self._line = hit.path, hit.line or 0

    def flush(self) -> None:
        """Write what was shown."""
        self._is_flush_due = False
        lines, self._lines = self._lines, []
        try:
            sys.stdout.buffer.write(encoded("".join(lines)))
            sys.stdout.flush()
        except OSError as exc:
            # The command ends with it, and not the event loop.
            self._error = exc

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _show_line(self, hit: SearchHit, *, is_next_file: bool) -> None:
        mark = "-" if hit.is_context else ":"
        is_gap = self._has_context and not is_next_file and hit.line != self._line + 1
        if is_gap or (self._has_context and is_next_file and self._path and not self._is_terminal):
            say("--")
        number = self._coloured(str(hit.line), _LINE)
        if self._is_terminal:
            if is_next_file:
                if self._path:
                    say("")
                self._say(self._coloured(hit.path, _PATH))
            self._print(f"{number}{mark}", hit)
        else:
            self._print(f"{self._coloured(hit.path, _PATH)}{mark}{number}{mark}", hit)

    def _print(self, head: str, hit: SearchHit) -> None:
        text, shown, last = hit.text, [], 0
        if not self._has_colour:
            say(head + text)
            return
        for start, end in hit.ranges:
            shown += [self._clean(text[last:start]), self._coloured(text[start:end], _MATCH)]
            last = end
        self._say(f"{head}{''.join(shown)}{self._clean(text[last:])}")

    def _say(self, line: str) -> None:
        """Print a line; in one with colours, what comes from the server is clean already."""
        if self._has_colour:
            sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape") + b"\n")
        else:
            say(line)

    def _clean(self, text: str) -> str:
        return readable(text.replace("\t", "    ")) if self._is_terminal else text

    def _coloured(self, text: str, colour: str) -> str:
        return f"{colour}{self._clean(text)}{_RESET}" if self._has_colour else text

    def _finish_file(self) -> None:
        if self._values.count and self._path is not None and self._in_file:
            say(f"{self._path}:{self._in_file}")
        self._in_file = 0

    def finish(self) -> None:
        self.flush()
        self._raise_error()
        if self._values.quiet:
            return
        if self._is_json:
            say_json(self._entries, is_list=True)
        else:
            self._finish_file()


def _as_json(hit: SearchHit) -> dict[str, Any]:
    found: dict[str, Any] = {"path": hit.path, "text": hit.text}
    if hit.line is not None:
        found["line"] = hit.line
    return found | {"ranges": hit.ranges, "isContext": hit.is_context}
