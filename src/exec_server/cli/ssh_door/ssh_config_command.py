"""`exec-server ssh-config`: the stanza with which OpenSSH reaches servers by their names."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from pathlib import Path

from exec_server.cli import exit_codes, server_access
from exec_server.cli.log_setup import print_error, print_warning
from exec_server.cli.options import duration, read_token_file
from exec_server.cli.parser import Flag, Parser, path, seconds
from exec_server.cli.ssh_door.door_needs import host_key, require_asyncssh
from exec_server.cli.ssh_door.known_door import KEY_DIR
from exec_server.errors import ConfigurationError
from exec_server.ssh_door.ssh_files import SshFiles
from exec_server.ssh_door.stanza import SUFFIX, check_host, make_config

_DESCRIPTION = """\
Print the stanza of ssh_config with which ssh, scp, sftp, rsync, git, sshfs, Ansible and VS Code
reach servers by their names. No port is opened, no password exists, and no question about a host
key is asked: OpenSSH starts an ssh server on this machine for each connection, and pins its key.
"""

_EPILOG = f"""\
Each HOST is the name of an environment (`exec-server env` lists them), or ALIAS=URL. Without one,
all environments are meant. `ssh NAME{SUFFIX}` reaches every environment, also a later one.
`ssh NAME%ID` attaches to the process with this id, which `exec-server ps` prints.

exit status:
  0    done
  1    a name is unknown, a file cannot be written, or exec-server[ssh] is not installed
  2    the command line is wrong

examples:
  Install the stanza for all environments, and use it:
      exec-server ssh-config --install
      ssh build
      rsync -a src/ build:src/

  Print it for one environment and one URL:
      exec-server ssh-config build lab=ws://127.0.0.1:8765

  Take it out again:
      exec-server ssh-config --remove
"""


def ssh_config_command(words: list[str]) -> int:
    """Print, install or remove the stanza."""
    parser = Parser(
        "exec-server ssh-config",
        usage="[OPTIONS] [HOST]...",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("hosts", metavar="[HOST]", nargs="*", help="environments, or ALIAS=URL")
    parser.add_argument(
        "--install",
        action=Flag,
        help="write it to ~/.ssh/exec-server.conf, and include that in ~/.ssh/config",
    )
    parser.add_argument("--remove", action=Flag, help="undo --install")
    parser.add_argument(
        "--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token"
    )
    parser.add_argument(
        "--linger",
        metavar="<SECONDS>",
        type=seconds,
        help="keep the ssh server for the next connection, which is faster then; 0: do not "
        "[default: 60]",
    )
    parser.add_argument(
        "--keep",
        metavar="<TIME>",
        type=duration,
        help="let programs in the background run on for so long after ssh has left, for example 1d",
    )
    values = parser.parse_words(words)
    if values.install and values.remove:
        parser.error("the argument '--install' cannot be used with '--remove'")
    if values.remove and values.hosts:
        parser.error("the argument '--remove' cannot be used with '[HOST]'")
    try:
        return _remove() if values.remove else _write(values)
    except ConfigurationError as exc:
        print_error(str(exc))
    except OSError as exc:
        print_error(f"{exc.filename}: {exc.strerror}")
    return exit_codes.FAILED


def _write(values: argparse.Namespace) -> int:
    require_asyncssh()
    names, urls = _split(values.hosts)
    key = host_key()
    command = [*_own_command(), KEY_DIR, os.path.abspath(key.known_hosts.parent)]
    if values.token_file is not None:
        read_token_file(values.token_file)
        command += ["--token-file", os.path.abspath(values.token_file)]
    if values.linger is not None:
        command += ["--linger", f"{values.linger:g}"]
    if values.keep is not None:
        command += ["--keep", f"{values.keep:g}s"]
    key.ensure()
    text = make_config(names, urls, command=command, known_hosts=key.known_hosts)
    if not values.install:
        print(text, end="")
        return exit_codes.OK
    files = SshFiles(_ssh_directory())
    done = "installed" if files.install(text) else "nothing to do: it is installed already"
    hosts = ", ".join([*names, *urls, f"*{SUFFIX}"])
    print(f"{done}: {files.included}, for {hosts}")
    _tell_other_home()
    return exit_codes.OK


def _remove() -> int:
    files = SshFiles(_ssh_directory())
    print("removed" if files.remove() else "nothing to do: it is not installed")
    return exit_codes.OK


def _split(hosts: list[str]) -> tuple[list[str], dict[str, str]]:
    """The names of environments, and the URLs by their aliases. Raises ConfigurationError."""
    known = server_access.environments()
    if not hosts:
        names = [name for name in known.names if known.resolve(name).kind != "local"]
        return [check_host(name) for name in names], {}
    names, urls = [], {}
    for host in hosts:
        alias, is_url, url = host.partition("=")
        if not is_url:
            known.resolve(check_host(host))
            names.append(host)
        elif server_access.is_url(url):
            urls[check_host(alias)] = url
        else:
            raise ConfigurationError(f"`{url}` is not the URL of a server")
    return names, urls


def _own_command() -> list[str]:
    """This program, in a form that is valid in every directory."""
    program = os.path.abspath(sys.argv[0])
    if os.path.basename(program) == "exec-server" and os.access(program, os.X_OK):
        return [program, "ssh-proxy"]
    # With -P the current directory is not searched for modules.
    return [sys.executable, "-P", "-m", "exec_server", "ssh-proxy"]


def _tell_other_home() -> None:
    """OpenSSH asks the system for the home directory, and not HOME."""
    try:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return
    config = _ssh_directory() / "config"
    if home != Path.home():
        print_warning(
            f"OpenSSH does not look at HOME, so it reads {home / '.ssh/config'}: use "
            f"`ssh -F {config}`, or install with HOME={home}"
        )


def _ssh_directory() -> Path:
    return Path.home() / ".ssh"
