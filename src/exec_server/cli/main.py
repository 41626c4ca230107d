"""`exec-server`: run the command that the first word names; without one, serve."""

from __future__ import annotations

import sys

from exec_server.cli.commands import find_entry

# The commands that may run commands of others.
_SERVERS = ("forward", "pair")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    entry = find_entry(words[0]) if words else None
    if argv is None and (entry is None or entry.name in _SERVERS):
        from exec_server.cli.secret_environment import hide

        hide(words)
    if entry is not None:
        return entry.load()(words[1:])
    from exec_server.cli.serve.serve_command import serve_command

    return serve_command(words)


if __name__ == "__main__":
    sys.exit(main())
