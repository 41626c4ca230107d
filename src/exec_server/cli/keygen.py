"""`exec-server keygen`: make a key file for an executor."""

from __future__ import annotations

import sys
from pathlib import Path

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Flag, Parser
from exec_server.errors import ConfigurationError

_DESCRIPTION = """\
Make the key by which clients recognize an executor, and print its fingerprint. A program that can
read the file can pretend to be the executor; only its owner may read it.
"""

_EPILOG = """\
exit status:
  0    the key was made
  1    the file exists already, or cannot be written
  2    the command line is wrong

examples:
  On the machine that runs commands:
      exec-server keygen ~/.config/exec-server.identity
      exec-server --remote URL --environment-id big-1 --identity ~/.config/exec-server.identity

  On the other machine, with the fingerprint that was printed:
      exec-server run --pin SHA256:... noise+https://registry.example.net/big-1 -- uname -a
"""


def keygen_command(words: list[str]) -> int:
    """Make the key that *words* describe."""
    parser = Parser(
        "exec-server keygen", usage="[OPTIONS] [FILE]", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="where to keep it [default: identity in $XDG_STATE_HOME/exec-server]",
    )
    parser.add_argument("--force", action=Flag, help="replace an existing key, which is lost")
    values = parser.parse_words(words)
    from exec_server.remote.identity import create_identity
    from exec_server.remote.state_dir import state_home

    path = state_home() / "identity" if values.file is None else Path(values.file)
    try:
        made = create_identity(path, may_replace=values.force)
    except ConfigurationError as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    print(made.public.fingerprint)
    print(f"the key is in {path}; use it with --identity {path}", file=sys.stderr)
    return exit_codes.OK
