"""The stanza of ssh_config: which hosts go through the door, and how OpenSSH starts it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from exec_server.errors import ConfigurationError
from exec_server.ssh_door.host_key import ALIAS

# `ssh NAME.exec` reaches every environment, also one that is configured after the stanza.
SUFFIX = ".exec"
# `ssh NAME%PROCESS` attaches to a process.
PROCESS_MARK = "%"

# What OpenSSH takes in a pattern as it is. Blanks, quotes and patterns need not be names.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_BEGIN = "# Made by `exec-server ssh-config`; `exec-server ssh-config --install` writes it anew.\n"

# The host as it was typed becomes a quoted word of a shell's command. OpenSSH refuses such hosts
# since 9.6; with an older one a quote would end the word, so no stanza is for a host that has one.
_UNQUOTABLE = '"!*\'*"'

_STANZA = """\
Host {unquotable} {hosts}
    ProxyCommand {command}
    ProxyUseFdpass yes
    HostKeyAlias {alias}
    UserKnownHostsFile "{known_hosts}"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    HostKeyAlgorithms ssh-ed25519
    UpdateHostKeys no
    PubkeyAuthentication no
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    GSSAPIAuthentication no
    Ciphers aes128-gcm@openssh.com
    ForwardAgent no
    ForwardX11 no
"""


def split_target(word: str) -> tuple[str, str | None]:
    """The name of the environment in what was given to ssh, and the process, if there is one."""
    name, mark, process = word.partition(PROCESS_MARK)
    return name.removesuffix(SUFFIX), process if mark else None


def check_host(name: str) -> str:
    """*name*, if OpenSSH can use it as the name of a host. Raises ConfigurationError."""
    if _HOST.fullmatch(name) is None:
        raise ConfigurationError(
            f"`{name}` cannot be the name of a host: letters, digits, `_`, `-` and `.` are allowed"
        )
    return name


def make_config(
    names: Sequence[str], urls: dict[str, str], *, command: Sequence[str], known_hosts: Path
) -> str:
    """The whole text: one stanza for all *names*, and one for each host that stands for a URL.

    Raises ConfigurationError if a word or a path cannot be written there.
    """
    each = [pattern for name in names for pattern in (name, f"{name}{PROCESS_MARK}*")]
    hosts = [*each, f"*{SUFFIX}", f"*{SUFFIX}{PROCESS_MARK}*"]
    parts = [_BEGIN, _stanza(hosts, command, known_hosts)]
    for name, url in urls.items():
        words = [*command, "--url", url]
        parts.append(_stanza([name, f"{name}{PROCESS_MARK}*"], words, known_hosts))
    return "\n".join(parts)


def _stanza(hosts: Sequence[str], words: Sequence[str], known_hosts: Path) -> str:
    # Behind the words is %n, which ssh replaces by the host as it was typed.
    return _STANZA.format(
        unquotable=_UNQUOTABLE,
        hosts=" ".join(hosts),
        command=f"{_literal(shlex.join(words))} '%n'",
        alias=ALIAS,
        known_hosts=_literal(str(known_hosts), unusable=('"', "${")),
    )


def _literal(text: str, *, unusable: Sequence[str] = ()) -> str:
    """*text* as ssh has to find it in its file. Raises ConfigurationError.

    A line break would begin another line, which could hold any command.
    """
    if _CONTROL.search(text) or any(each in text for each in unusable):
        raise ConfigurationError(f"{text!r:.256} cannot be written to a file of OpenSSH")
    return text.replace("%", "%%")
