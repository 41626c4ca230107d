"""The words of `exec-server ssh-proxy`, and its help.

OpenSSH starts this command for every connection, with words that `ssh-config` wrote. They are read
without a parser, which takes longer to import than everything else that a connection needs.
"""

from __future__ import annotations

from typing import NamedTuple

from exec_server.cli.ssh_door.known_door import KEY_DIR

_DESCRIPTION = """\
Be the ProxyCommand of OpenSSH: an ssh server on standard input and output, which passes everything
on to a server. `exec-server ssh-config` writes the stanza that starts it.
"""

_EPILOG = """\
HOST is what was given to ssh: the name of an environment, with or without .exec, or NAME%ID for a
process there. With --url its name is free.

exit status:
  0    the connection has ended
  1    exec-server[ssh] is not installed, or the key cannot be read
  2    the command line is wrong

examples:
  Connect without a stanza:
      ssh -o ProxyCommand='exec-server ssh-proxy build' -o HostKeyAlias=exec-server build
"""

# How many seconds a door waits for the next connection, unless an option says otherwise.
LINGER = 60.0


class ProxyWords(NamedTuple):
    """What one ssh connection is to be."""

    host: str
    url: str | None = None
    token_file: str | None = None
    linger: float = LINGER
    # How long the server keeps what a command has left in the background.
    keep: float | None = None
    # Where the host key is; None: in the state directory of this user's programs.
    key_dir: str | None = None


def read_words(words: list[str]) -> ProxyWords:
    """The words as `ssh-config` writes them, or else as the parser reads them."""
    if len(words) == 1 and not words[0].startswith("-"):
        return ProxyWords(words[0])
    if len(words) == 3 and words[0] == KEY_DIR and not words[2].startswith("-"):
        return ProxyWords(words[2], key_dir=words[1])
    return _parsed(words)


def _parsed(words: list[str]) -> ProxyWords:
    from exec_server.cli.options import duration
    from exec_server.cli.parser import Parser, path, seconds

    parser = Parser(
        "exec-server ssh-proxy",
        usage="[OPTIONS] <HOST>",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("host", metavar="<HOST>", help="the host that was given to ssh")
    add("--url", metavar="<URL>", help="the server, if HOST is not its name")
    add("--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token")
    add(
        "--linger",
        metavar="<SECONDS>",
        type=seconds,
        default=LINGER,
        help="wait so long for the next connection, which is faster then; 0: do not [default: 60]",
    )
    add(
        "--keep",
        metavar="<TIME>",
        type=duration,
        help="let programs in the background run on for so long after ssh has left, for example 1d",
    )
    add(
        KEY_DIR,
        metavar="<DIR>",
        type=path,
        help="directory of the host key, which the stanza pins [default: in the state directory]",
    )
    values = parser.parse_words(words)
    return ProxyWords(
        values.host, values.url, values.token_file, values.linger, values.keep, values.key_dir
    )
