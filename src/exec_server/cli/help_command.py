"""`exec-server help`: the help of the program, or of one command."""

from __future__ import annotations

from exec_server.cli.commands import command_names, find_entry
from exec_server.cli.parser import Parser

_EPILOG = """\
exit status:
  0    printed
  2    there is no such command

examples:
  All commands, and the options of the server:
      exec-server help

  One command:
      exec-server help run
"""


def help_command(words: list[str]) -> int:
    """Print the help that *words* ask for; an unknown command ends the program with status 2."""
    if words in (["-h"], ["--help"]):
        _parser().parse_args(words)
    entry = find_entry(words[0]) if len(words) == 1 else None
    if entry is not None:
        return entry.load()(["--help"])
    from exec_server.cli.serve.serve_command import serve_command

    # The server's parser prints the whole text, or refuses a word as the reference does.
    return serve_command(["help", *words])


def _parser() -> Parser:
    parser = Parser(
        "exec-server help",
        usage="[COMMAND]",
        description="Print the help of the program, or of one command.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "command",
        metavar="COMMAND",
        nargs="?",
        choices=command_names(),
        help="the command to explain [default: all, and the server]",
    )
    return parser
