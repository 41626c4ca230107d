"""`exec-server`: choose the command; without one, serve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

# Where each command is; it is imported when it is chosen: a server should not load a client.
_COMMANDS = {
    "attach": "process.attach:attach_command",
    "cat": "files.cat_rm_mkdir:cat_command",
    "completion": "completion.completion_command:completion_command",
    "cp": "files.cp:cp_command",
    "doctor": "sandbox.doctor:doctor_command",
    "env": "env:env_command",
    "find": "files.ls_tree_find_stat:find_command",
    "fingerprint": "fingerprint:fingerprint_command",
    "keygen": "keygen:keygen_command",
    "kill": "process.kill:kill_command",
    "logs": "process.logs:logs_command",
    "ls": "files.ls_tree_find_stat:ls_command",
    "mkdir": "files.cat_rm_mkdir:mkdir_command",
    "pair": "pair.pair_command:pair_command",
    "ps": "process.ps:ps_command",
    "registry": "registry.registry_command:registry_command",
    "rm": "files.cat_rm_mkdir:rm_command",
    "run": "process.run:run_command",
    "sandbox": "sandbox.sandbox_command:sandbox_command",
    "shell": "process.shell:shell_command",
    "stat": "files.ls_tree_find_stat:stat_command",
    "tree": "files.ls_tree_find_stat:tree_command",
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
    from exec_server.cli.serve.serve_command import serve_command

    return serve_command(words)


if __name__ == "__main__":
    sys.exit(main())
