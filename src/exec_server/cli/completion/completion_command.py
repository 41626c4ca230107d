"""`exec-server completion`: completions for shells, made from the parsers of the commands."""

from __future__ import annotations

import argparse
import sys
from typing import Literal, NamedTuple

from exec_server.cli import exit_codes
from exec_server.cli.commands import GROUPS, CommandEntry
from exec_server.cli.completion import completion_scripts
from exec_server.cli.parser import Parser, parser_of, path
from exec_server.errors import ExecServerError

# The kind of words that follow a command: servers, files on servers (targets), ids of detached
# processes, servers or ids (processes), or names of environments.
Words = Literal["servers", "targets", "ids", "processes", "names", "none"]

_SUMMARY_WIDTH = 70
# The first mark that is found in the usage line decides.
_WORDS_BY_USAGE: tuple[tuple[str, Words], ...] = (
    ("[SERVER] <ID>", "processes"),
    ("<ID>", "ids"),
    ("PATH>", "targets"),
    ("<SRC>", "targets"),
    ("SERVER", "servers"),
    ("[NAME]", "names"),
)

_EPILOG = """\
exit status:
  0    printed
  2    the command line is wrong

examples:
  bash, in ~/.bashrc:
      source <(exec-server completion bash)

  zsh, in a directory of $fpath:
      exec-server completion zsh > ~/.zfunc/_exec-server

  fish:
      exec-server completion fish > ~/.config/fish/completions/exec-server.fish
"""


class OptionCompletion(NamedTuple):
    names: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool
    help: str


class CommandCompletion(NamedTuple):
    # The name is empty for the server, which has no command.
    name: str
    summary: str
    options: tuple[OptionCompletion, ...]
    words: Words
    # Fixed words that the command takes, such as `check`.
    choices: tuple[str, ...]


def completion_command(words: list[str]) -> int:
    """Print the script, the names or the ids that *words* ask for."""
    parser = Parser(
        "exec-server completion",
        usage="<SHELL>",
        description="Print a script that completes the words of exec-server in a shell. The script "
        "calls `names`\nand `ids` for the names of servers and the ids of detached processes. "
        "After SERVER: it asks\nthe server for paths, for at most two seconds.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "shell",
        metavar="<SHELL>",
        nargs="?",
        choices=("bash", "zsh", "fish", "names", "ids"),
        help="bash, zsh or fish",
    )
    # For the scripts: the paths on a server that begin with this word.
    parser.add_argument("--paths", metavar="<WORD>", help=argparse.SUPPRESS)
    values = parser.parse_words(words)
    if values.paths is not None:
        from exec_server.cli.completion.remote_paths import print_paths

        print_paths(values.paths)
    what = values.shell
    if what is None:
        parser.error("the following required arguments were not provided:\n  <SHELL>")
    if what in ("names", "ids"):
        _print_words(what)
    else:
        render = getattr(completion_scripts, what)
        commands = [complete_entry(entry) for group in GROUPS for entry in group.entries]
        sys.stdout.write(render(_server(), commands))
    return exit_codes.OK


def _print_words(what: str) -> None:
    from exec_server.cli.process.detached.saved_sessions import SessionStore
    from exec_server.cli.server_access import environments

    try:
        if what == "names":
            found = list(environments().names)
        else:
            found = [session.id for session in SessionStore().all()]
    except (ExecServerError, OSError):
        # An error message would appear in the middle of the command line.
        return
    print("\n".join(found), end="\n" if found else "")


def _server() -> CommandCompletion:
    from exec_server.cli.serve.serve_parser import serve_parser

    return _describe("", "start a server", serve_parser())


def complete_entry(entry: CommandEntry) -> CommandCompletion:
    """The words and options that can follow a command."""
    return _describe(entry.name, entry.summary, parser_of(entry.load()))


def _describe(name: str, summary: str, parser: Parser) -> CommandCompletion:
    actions = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    choices = [
        str(choice)
        for action in actions
        if not action.option_strings
        for choice in action.choices or ()
    ]
    return CommandCompletion(
        name,
        summary,
        tuple(_option(parser, action) for action in actions if action.option_strings),
        next((words for mark, words in _WORDS_BY_USAGE if mark in (parser.usage or "")), "none"),
        tuple(choices),
    )


def _summary(text: str) -> str:
    first = " ".join(text.split()).partition(". ")[0].partition(": ")[0].rstrip(".")
    return first if len(first) <= _SUMMARY_WIDTH else first[: _SUMMARY_WIDTH - 3] + "..."


def _option(parser: Parser, action: argparse.Action) -> OptionCompletion:
    return OptionCompletion(
        tuple(action.option_strings),
        action.nargs not in (0, "?"),
        tuple(map(str, action.choices or parser.suggestions.get(action.dest, ()))),
        # Other paths are paths on the server, which the shell cannot complete.
        action.type is path and action.metavar == "<PATH>",
        _summary((action.help or "").replace("%(default)s", str(action.default))),
    )
