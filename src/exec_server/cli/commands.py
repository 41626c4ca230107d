"""The table of commands: dispatch, help, suggestions and completion are all derived from it.

A new command is a module with a function that takes the words after the command's name and
returns the exit status, and one entry here. The module is long because every command is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A command takes the words after its name and returns the exit status.
CommandFunction = Callable[[list[str]], int]

# As wide as the longest name with its words; the help has one column for all groups.
_USAGE_WIDTH = 24


class CommandEntry:
    """One command, as the help lists it."""

    __slots__ = ("home", "name", "summary", "words")

    def __init__(self, name: str, words: str, summary: str, home: str) -> None:
        self.name = name
        # The words that usually follow the name.
        self.words = words
        self.summary = summary
        # MODULE:FUNCTION below this package. The module is imported when the command is chosen: a
        # server must not load a client.
        self.home = home

    def load(self) -> CommandFunction:
        """Import the function that runs the command."""
        from importlib import import_module

        module, _, function = self.home.partition(":")
        found: CommandFunction = getattr(import_module(f"exec_server.cli.{module}"), function)
        return found


class CommandGroup:
    """Commands that the help shows under one title."""

    __slots__ = ("entries", "title")

    def __init__(self, title: str, entries: tuple[CommandEntry, ...]) -> None:
        self.title = title
        self.entries = entries


# In the order of the help: the commonest first.
GROUPS = (
    CommandGroup(
        "run commands",
        (
            CommandEntry(
                "run",
                "SERVER -- COMMAND",
                "run a command on a server as if it ran here",
                "process.run:run_command",
            ),
            CommandEntry(
                "shell", "SERVER", "open a terminal on a server", "process.shell:shell_command"
            ),
            CommandEntry(
                "web",
                "[NAME...]",
                "open a page with terminals, processes and files of your servers",
                "web_command:web_command",
            ),
            CommandEntry(
                "sandbox",
                "-- COMMAND",
                "run a command on this machine in a sandbox, without a server",
                "sandbox.sandbox_command:sandbox_command",
            ),
            CommandEntry(
                "ssh",
                "SERVER [COMMAND]",
                "be `ssh` for git, rsync and other programs that call it",
                "process.ssh:ssh_command",
            ),
            CommandEntry(
                "ssh-config",
                "[HOST]...",
                "let OpenSSH, scp, rsync, Ansible and VS Code reach servers",
                "ssh_door.ssh_config_command:ssh_config_command",
            ),
            CommandEntry(
                "ssh-proxy",
                "HOST",
                "be the ProxyCommand of OpenSSH; `ssh-config` writes the stanza",
                "ssh_door.ssh_proxy_command:ssh_proxy_command",
            ),
            CommandEntry(
                "port",
                "SERVER -L PORT",
                "reach ports of a server from this machine, and the other way round",
                "port.port_command:port_command",
            ),
            CommandEntry(
                "mcp",
                "[SERVER]",
                "give agents that speak MCP tools to work on a server",
                "mcp.mcp_command:mcp_command",
            ),
        ),
    ),
    CommandGroup(
        "processes that `run --detach` has left running",
        (
            CommandEntry(
                "ps",
                "[SERVER]",
                "list those of this machine, or all of a server",
                "process.ps:ps_command",
            ),
            CommandEntry(
                "attach",
                "[SERVER] ID",
                "show the output of one again, and type to it",
                "process.attach:attach_command",
            ),
            CommandEntry(
                "logs", "[SERVER] ID", "print the output of one", "process.logs:logs_command"
            ),
            CommandEntry(
                "screen",
                "[SERVER] ID",
                "print what the terminal of one shows, or draw it",
                "process.screen_command:screen_command",
            ),
            CommandEntry(
                "kill", "[SERVER] ID...", "send them a signal", "process.kill:kill_command"
            ),
            CommandEntry(
                "jobs",
                "prune SERVER",
                "let a server forget durable ones that are over",
                "process.prune_jobs:jobs_command",
            ),
        ),
    ),
    CommandGroup(
        "recordings of terminals",
        (
            CommandEntry(
                "recordings",
                "[find REGEX]",
                "list recordings of terminals, find text in them, export them",
                "recordings.recordings_command:recordings_command",
            ),
            CommandEntry(
                "replay",
                "FILE",
                "play a recording of a terminal",
                "recordings.replay_command:replay_command",
            ),
        ),
    ),
    CommandGroup(
        "files on a server",
        (
            CommandEntry(
                "cp",
                "SRC... DST",
                "copy files (trees with -r) to a server or from it",
                "files.cp:cp_command",
            ),
            CommandEntry(
                "sync",
                "SRC DST",
                "make one directory like another one, on a server or here",
                "files.sync:sync_command",
            ),
            CommandEntry(
                "mv",
                "SRC... DST",
                "rename files on a server, or move them to it or from it",
                "files.mv:mv_command",
            ),
            CommandEntry(
                "ls", "SERVER:/PATH", "list a directory", "files.ls_tree_find_stat:ls_command"
            ),
            CommandEntry("cat", "SERVER:/PATH", "print a file", "files.cat_rm_mkdir:cat_command"),
            CommandEntry(
                "find",
                "SERVER:/PATH",
                "find files by name or type",
                "files.ls_tree_find_stat:find_command",
            ),
            CommandEntry(
                "grep",
                "REGEX SERVER:/PATH",
                "search in files, or in their names",
                "files.grep:grep_command",
            ),
            CommandEntry(
                "watch",
                "SERVER:/PATH",
                "print what changes in a directory",
                "files.watch:watch_command",
            ),
            CommandEntry(
                "tree",
                "SERVER:/PATH",
                "draw a directory and everything below it",
                "files.ls_tree_find_stat:tree_command",
            ),
            CommandEntry(
                "stat",
                "SERVER:/PATH",
                "print size, mode and time of a file",
                "files.ls_tree_find_stat:stat_command",
            ),
            CommandEntry(
                "mkdir", "SERVER:/PATH", "make a directory", "files.cat_rm_mkdir:mkdir_command"
            ),
            CommandEntry(
                "rm",
                "SERVER:/PATH",
                "remove files (trees with -r)",
                "files.cat_rm_mkdir:rm_command",
            ),
        ),
    ),
    CommandGroup(
        "servers and this machine",
        (
            CommandEntry(
                "env",
                "[list | check]",
                "list the servers that have a name, and check that they answer",
                "env:env_command",
            ),
            CommandEntry(
                "stop",
                "SERVER",
                "stop a server; its durable jobs run on, unless --jobs is given",
                "stop:stop_command",
            ),
            CommandEntry(
                "audit",
                "FILE",
                "show and check the audit log of a server",
                "audit_command:audit_command",
            ),
            CommandEntry(
                "doctor",
                "[SERVER]",
                "show which sandboxes work, and how to repair what does not",
                "sandbox.doctor:doctor_command",
            ),
            CommandEntry(
                "token",
                "create NAME",
                "say who may use a server, and for what",
                "token.token_command:token_command",
            ),
            CommandEntry(
                "whoami",
                "SERVER",
                "show what a server lets this client do",
                "token.whoami:whoami_command",
            ),
            CommandEntry(
                "cert",
                "ca DIR",
                "make an authority and certificates for TLS in a lab",
                "cert.cert_command:cert_command",
            ),
        ),
    ),
    CommandGroup(
        "machines that accept no connections, reached through a registry",
        (
            CommandEntry(
                "pair",
                "CODE@REGISTRY",
                "let one machine use another one, with a code",
                "pair.pair_command:pair_command",
            ),
            CommandEntry(
                "registry",
                "",
                "run a registry, and manage its tokens",
                "registry.registry_command:registry_command",
            ),
            CommandEntry(
                "forward",
                "--connect URL",
                "register a server that is already running",
                "serve.serve_command:forward_command",
            ),
            CommandEntry(
                "keygen",
                "[FILE]",
                "make the key by which clients recognize this machine",
                "keygen:keygen_command",
            ),
            CommandEntry(
                "fingerprint",
                "FILE | URL",
                "print the fingerprint of such a key",
                "fingerprint:fingerprint_command",
            ),
        ),
    ),
    CommandGroup(
        "this program",
        (
            CommandEntry(
                "protocol",
                "",
                "print the protocol as an OpenRPC document or as JSON Schemas",
                "protocol_command:protocol_command",
            ),
            CommandEntry(
                "conformance",
                "URL",
                "check any server that speaks the protocol",
                "conformance_command:conformance_command",
            ),
            CommandEntry(
                "completion",
                "SHELL",
                "print completions for bash, zsh or fish",
                "completion.completion_command:completion_command",
            ),
            CommandEntry(
                "help",
                "[COMMAND]",
                "print this text, or the help of a command",
                "help_command:help_command",
            ),
        ),
    ),
)

# The commands of `exec-server registry`; without one it serves.
REGISTRY_COMMANDS = (
    CommandEntry(
        "token",
        "create KIND NAME",
        "manage the tokens that let executors and clients in",
        "registry.registry_tokens:token_command",
    ),
    CommandEntry(
        "env",
        "--registry URL",
        "list the environments of a running registry",
        "registry.registry_queries:env_command",
    ),
    CommandEntry(
        "events",
        "--registry URL",
        "list who connected to which environment, when and from where",
        "registry.registry_queries:events_command",
    ),
)

_BY_NAME = {entry.name: entry for group in GROUPS for entry in group.entries}


def command_names() -> list[str]:
    """The names of all commands, in the order of the help."""
    return list(_BY_NAME)


def find_entry(name: str) -> CommandEntry | None:
    """The entry of the command with exactly this name."""
    return _BY_NAME.get(name)


def find_command(name: str) -> CommandFunction:
    """The function that runs a command. Raises KeyError for a name that is in no entry."""
    return _BY_NAME[name].load()


def nearest_command(word: str) -> str | None:
    """The command that *word* most likely means, if one is near enough.

    A name that differs by one slip comes first. `difflib` alone misses those of short names: it
    finds `rnu` and `run` no more similar than two words that share two of three letters.
    """
    for name in _BY_NAME:
        if _is_one_slip(word, name):
            return name
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, _BY_NAME, n=1, cutoff=0.7)), None)


def commands_help() -> str:
    """The groups with one line for each command."""
    return "\n".join(f"{group.title}:\n{entries_help(group.entries)}" for group in GROUPS)


def entries_help(entries: Sequence[CommandEntry]) -> str:
    """One line for each of *entries*."""
    lines = [
        f"  {f'{entry.name} {entry.words}'.ljust(_USAGE_WIDTH)} {entry.summary}\n"
        for entry in entries
    ]
    return "".join(lines)


def _is_one_slip(one: str, other: str) -> bool:
    """True if a letter was added, left out or replaced, or two neighbours were swapped."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    if len(one) == len(other) == 2:
        return one == other[::-1]
    return bool(one or other) and len(one) <= 1 and len(other) <= 1
