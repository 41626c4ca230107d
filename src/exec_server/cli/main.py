"""`exec-server`: run the command that the first word names; without one, serve."""

from __future__ import annotations

import sys

from exec_server.cli.commands import find_entry


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    entry = find_entry(words[0]) if words else None
    if entry is not None:
        return entry.load()(words[1:])
    from exec_server.cli.serve.serve_command import serve_command

    return serve_command(words)


if __name__ == "__main__":
    sys.exit(main())
