"""What a shell's startup files leave behind: how it is captured, and how it is restored.

There is no I/O here: texts in, texts out.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from exec_server.errors import InvalidParams
from exec_server.limits import Limits
from exec_server.protocol import process

# Each script prints, between marks: options of the shell's own kind, functions, aliases, options
# that all shells have, and the exported variables.
_CAPTURES = {
    "bash": """
builtin printf '%s\\n' {mark}; builtin shopt -p
builtin printf '%s\\n' {mark}; builtin declare -f
builtin printf '%s\\n' {mark}; builtin alias -p
builtin printf '%s\\n' {mark}; builtin set +o
builtin printf '%s\\n' {mark}; command env -0
builtin printf '%s\\n' {mark}
""",
    "zsh": """
builtin print -r -- {mark}; builtin print -r -- {mark}; builtin functions
builtin print -r -- {mark}; builtin alias -L
builtin print -r -- {mark}; builtin setopt
builtin print -r -- {mark}; command env -0
builtin print -r -- {mark}
""",
    "sh": """
command printf '%s\\n' {mark} {mark} {mark}; alias
command printf '%s\\n' {mark}; set +o
command printf '%s\\n' {mark}; command env -0
command printf '%s\\n' {mark}
""",
}
_SECTIONS = 5

# These options say how a shell was started, cannot be set, or belong to a terminal.
_OWN_OPTIONS = frozenset(
    "debug emacs histexpand history interactive login login_shell monitor noexec nolog norcs"
    " notify onecmd privileged restricted restricted_shell shinstdin singlecommand stdin vi"
    " zle".split()
)
# A shell sets these variables itself.
_OWN_VARIABLES = frozenset({b"PWD", b"OLDPWD", b"SHLVL", b"_"})
_PLAIN_ALIAS = r"(?m)^(?!alias )(?=[^\s=']+=)"


class WantedSnapshot(NamedTuple):
    """A start that wants a snapshot instead of running its shell's startup files."""

    shell: str
    # Two starts with equal keys see the same state.
    key: Hashable
    # The variables that the request itself gives; no snapshot changes them.
    own_names: frozenset[bytes]

    def within(self, confinement: Hashable) -> WantedSnapshot:
        """The same in a sandbox; it shares its snapshot with starts that are confined alike."""
        return self._replace(key=(self.key, confinement))

    def keeping(self, names: Iterable[bytes]) -> WantedSnapshot:
        """The same, with *names* added to the variables that no snapshot changes."""
        return self._replace(own_names=self.own_names.union(names))


class ShellState(msgspec.Struct, frozen=True):
    # A script that restores functions, aliases and options.
    script: bytes
    # The variables that the startup files have added or changed.
    exports: dict[bytes, bytes]


def wanted_snapshot(params: process.StartParams, limits: Limits) -> WantedSnapshot | None:
    """The snapshot that a start asks for, if it is a login shell's. Raises InvalidParams."""
    snapshot = params.shell_snapshot
    if snapshot is None:
        return None
    if not 1 <= len(snapshot.scope_id.encode()) <= limits.snapshot_scope_bytes:
        raise InvalidParams("shell snapshot scope must be non-empty and at most 256 bytes")
    shell = snapshot.shell
    if len(params.argv) < 3 or params.argv[:2] != [shell.path, "-lc"]:
        return None
    if shell.name not in _CAPTURES:
        raise InvalidParams(f"shell snapshots are unsupported for shell `{shell.name}`")
    policy = msgspec.json.encode(params.env_policy)
    key = (snapshot.scope_id, shell.name, shell.path, params.cwd, policy)
    return WantedSnapshot(shell.name, key, frozenset(name.encode() for name in params.env))


def capture_script(shell: str, mark: str) -> str:
    """The script that makes a login shell print its state; *mark* must not occur in the state."""
    return _CAPTURES[shell].format(mark=mark)


def is_complete(output: bytes | bytearray, mark: str) -> bool:
    """True if the last mark is there; nothing behind it matters."""
    return output.count(mark.encode() + b"\n") > _SECTIONS


def parse_capture(
    shell: str, output: bytes, mark: str, env: Mapping[bytes, bytes]
) -> ShellState | None:
    """The state that `capture_script` printed in *env*; None when something is missing."""
    sections = output.split(mark.encode() + b"\n")
    if len(sections) < _SECTIONS + 2:
        return None
    # The text before the first mark is output of the startup files.
    own, functions, aliases, options, exported = sections[1 : _SECTIONS + 1]
    if b"\0" not in exported:
        # The startup files set a PATH on which there is no `env`.
        return None
    texts = [part.decode("utf-8", "surrogateescape") for part in (own, functions, aliases, options)]
    script = _restoring(shell, *texts).encode("utf-8", "surrogateescape")
    return ShellState(script, _changed(exported, env))


def _restoring(shell: str, own: str, functions: str, aliases: str, options: str) -> str:
    kept = [line for line in own.splitlines() if line.split()[-1] not in _OWN_OPTIONS]
    # This option comes last: with it set, aliases would be expanded inside of functions, too.
    last = [line for line in kept if line.endswith(" expand_aliases")]
    first = [line for line in kept if line not in last]
    if shell == "zsh":
        # zsh can be made a login shell later on.
        options = "".join(f"setopt {name}\n" for name in options.split() if name != "login")
        last.append("setopt login")
    if shell == "sh":
        aliases = re.sub(_PLAIN_ALIAS, "alias ", aliases)
    plain = [line for line in options.splitlines() if line.split()[-1] not in _OWN_OPTIONS]
    return "\n".join([*first, functions, aliases, *last, *plain, ""])


def _changed(exported: bytes, env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for entry in exported.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name not in _OWN_VARIABLES and env.get(name) != value:
            found[name] = value
    return found


def replaying_argv(
    shell: str, argv: list[bytes], path: str, *, closing: int | None = None
) -> list[bytes]:
    """*argv* of a login shell that reads the script at *path* instead of its startup files.

    If *path* names a descriptor, *closing* is its number; it is closed before the command runs.
    """
    import shlex

    close = f"; exec {closing}<&-" if closing is not None else ""
    restore = f"if [ -r {shlex.quote(path)} ]; then . {shlex.quote(path)} >/dev/null; fi{close}\n"
    if shell == "bash":
        # A privileged bash ignores BASH_ENV, as a login shell does.
        option, restore = b"-pc", f"set +o privileged\n{restore}"
    elif shell == "zsh":
        option, restore = b"-fc", f"setopt rcs\n{restore}"
    else:
        option = b"-c"
    name, _, script, *rest = argv
    return [name, option, restore.encode() + script, *rest]
