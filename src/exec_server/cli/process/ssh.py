"""`exec-server ssh`: the shape of OpenSSH's `ssh`, for programs that run it."""

from __future__ import annotations

import os
import sys

from exec_server.cli import exit_codes, server_access
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Parser
from exec_server.cli.process.own_terminal.connection_notices import Notices
from exec_server.cli.process.run import run_on
from exec_server.cli.process.run_options import RunOptions
from exec_server.cli.process.ssh_words import SshWords, parse_ssh
from exec_server.client.client import ExecServerClient
from exec_server.errors import ConfigurationError, ExecServerError
from exec_server.ssh_door.remote_commands import shell_words
from exec_server.version import VERSION

# What `ssh` returns if it fails itself; git, rsync and others tell it from the command's statuses.
LINK_FAILED = 255

_DESCRIPTION = """\
Run a command on a server for programs that call `ssh`: git, rsync, scp, execnet, borg. The words of
the command are joined with spaces and given to the shell over there, as ssh does it.
"""

_EPILOG = """\
SERVER is the name of an environment, or a URL; a user before it (user@SERVER) and all options about
keys, users, ports and ciphers are ignored. The token is the configured one, or EXEC_SERVER_TOKEN.

  -t, -tt, -T   a terminal if there is one here, always, never; without a command there is one
  -n            give the command no input
  -s            run a subsystem: sftp, if the server's machine has an sftp-server
  -o            SendEnv, SetEnv and RequestTTY are respected, others ignored
  -q            say nothing about the connection
  -G, -V        print the name of the server, or the version

exit status:
  the status of the command; 128 + N if signal N ended it
  255  the server cannot be reached, the connection was lost, or the command line is wrong

examples:
  Clone a repository of a server:
      GIT_SSH_COMMAND='exec-server ssh' git clone build:/srv/app.git

  Copy a tree with rsync:
      rsync -a -e 'exec-server ssh' src/ build:/srv/src/

  Distribute tests with pytest-xdist:
      pytest -d --tx 'ssh=build//ssh_command=exec-server ssh//python=python3'
"""

# Where systems have it.
_SFTP = """\
for name in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do
    [ -x "$name/sftp-server" ] && exec "$name/sftp-server"
done
echo "there is no sftp-server on this machine" >&2
exit 127
"""


def ssh_parser() -> Parser:
    """Only for the help: OpenSSH's options are read by `parse_ssh`."""
    return Parser(
        "exec-server ssh",
        usage="[OPTIONS] [USER@]SERVER [COMMAND [ARGS]...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )


def ssh_command(words: list[str]) -> int:
    """Run the command that *words* describe and return its exit status, or 255."""
    if words[:1] in (["--help"], ["-h"]):
        ssh_parser().parse_options(words, os.environ)
    try:
        if not words:
            raise ConfigurationError("a server is needed; see `exec-server ssh --help`")
        wanted = parse_ssh(words)
        if wanted.asks_version:
            print(f"exec-server {VERSION}", file=sys.stderr)
            return exit_codes.OK
        if wanted.asks_configuration:
            # git asks so whether it may pass the options of OpenSSH.
            print(f"host {wanted.server}\nhostname {wanted.server}")
            return exit_codes.OK
        if not server_access.is_server(wanted.server):
            raise ConfigurationError(
                f"`{wanted.server}` is neither the name of an environment nor a URL"
            )
    except ConfigurationError as exc:
        print_error(str(exc))
        return LINK_FAILED

    async def ssh() -> int:
        try:
            return await _ssh(wanted)
        except exit_codes.StatusError:
            raise
        except ExecServerError as exc:
            if not wanted.is_quiet:
                print_error(exit_codes.text_of(exc))
            return LINK_FAILED

    return run_to_exit_status(ssh, log_level="error")


async def _ssh(wanted: SshWords) -> int:
    notices = Notices()
    opening = server_access.open_server(
        wanted.server, client_name="exec-server ssh", on_state=notices.on_state
    )
    async with opening as client:
        options = RunOptions(
            server=wanted.server,
            argv=await _argv(client, wanted),
            env=wanted.variables(os.environ),
            tty=_has_terminal(wanted),
            stdin=wanted.has_input,
        )
        return await run_on(client, options, notices, {})


def _has_terminal(wanted: SshWords) -> bool:
    if wanted.terminals is None or wanted.is_subsystem:
        return False
    # Without a command it is a shell for a person.
    asked = wanted.terminals > 0 or not wanted.command
    return wanted.terminals > 1 or (asked and os.isatty(0))


async def _argv(client: ExecServerClient, wanted: SshWords) -> list[str]:
    if wanted.is_subsystem:
        if wanted.command != ["sftp"]:
            raise ConfigurationError(f"there is no subsystem `{' '.join(wanted.command)}`")
        return ["/bin/sh", "-c", _SFTP]
    return await shell_words(client, " ".join(wanted.command) if wanted.command else None)
