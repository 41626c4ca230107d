"""`exec-server`: choose the command; without one, serve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

# Where each command is; it is imported when it is chosen: a server should not load a client.
_COMMANDS = {
    "attach": "attach:attach_command",
    "cat": "files:cat_command",
    "completion": "completion:completion_command",
    "cp": "cp:cp_command",
    "doctor": "doctor:doctor_command",
    "env": "env:env_command",
    "find": "listing:find_command",
    "fingerprint": "fingerprint:fingerprint_command",
    "keygen": "keygen:keygen_command",
    "kill": "kill:kill_command",
    "logs": "logs_command:logs_command",
    "ls": "listing:ls_command",
    "mkdir": "files:mkdir_command",
    "pair": "pair:pair_command",
    "ps": "ps:ps_command",
    "registry": "registry:registry_command",
    "rm": "files:rm_command",
    "run": "run:run_command",
    "sandbox": "sandbox:sandbox_command",
    "shell": "shell:shell_command",
    "stat": "listing:stat_command",
    "tree": "listing:tree_command",
}


def command_names() -> list[str]:
    """The commands there are."""
    return list(_COMMANDS)


def find_command(name: str) -> Callable[[list[str]], int]:
    """What runs a command; it takes the words after the name and returns the exit status."""
    module, _, function = _COMMANDS[name].partition(":")
    found: Callable[[list[str]], int] = getattr(
        import_module(f"exec_server.cli.{module}"), function
    )
    return found


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["help"] and len(words) == 2 and words[1] in _COMMANDS:
        words = [words[1], "--help"]
    if words and words[0] in _COMMANDS:
        return find_command(words[0])(words[1:])
    from exec_server.cli.serve import serve_command

    return serve_command(words)


if __name__ == "__main__":
    sys.exit(main())
