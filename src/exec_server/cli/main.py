"""`exec-server`: choose the command; without one, serve."""

from __future__ import annotations

import sys
from importlib import import_module

# Where each command is; it is imported when it is chosen: a server should not load a client.
_COMMANDS = {
    "cat": "files:cat_command",
    "cp": "cp:cp_command",
    "find": "listing:find_command",
    "ls": "listing:ls_command",
    "mkdir": "files:mkdir_command",
    "rm": "files:rm_command",
    "run": "run:run_command",
    "stat": "listing:stat_command",
    "tree": "listing:tree_command",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    command = _COMMANDS.get(words[0]) if words else None
    if command is None:
        from exec_server.cli.serve import serve_command

        return serve_command(words)
    module, _, function = command.partition(":")
    status: int = getattr(import_module(f"exec_server.cli.{module}"), function)(words[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
