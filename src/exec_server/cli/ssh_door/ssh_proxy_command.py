"""`exec-server ssh-proxy`: the ProxyCommand of OpenSSH, an ssh server for one connection.

Modules are imported late: everything that takes time happens while OpenSSH prepares its side.
"""

from __future__ import annotations

from exec_server.cli import exit_codes
from exec_server.cli.log_setup import print_error
from exec_server.cli.parser import Parser, path
from exec_server.errors import ConfigurationError

_DESCRIPTION = """\
Be the ProxyCommand of OpenSSH: an ssh server on standard input and output, which passes everything
on to a server. `exec-server ssh-config` writes the stanza that starts it.
"""

_EPILOG = """\
HOST is what was given to ssh: the name of an environment, with or without .exec, or NAME%ID for a
process there. With --url its name is free.

exit status:
  0    the connection has ended
  1    exec-server[ssh] is not installed, or the key cannot be read
  2    the command line is wrong

examples:
  Connect without a stanza:
      ssh -o ProxyCommand='exec-server ssh-proxy build' -o HostKeyAlias=exec-server build
"""


def ssh_proxy_command(words: list[str]) -> int:
    """Serve one ssh connection on standard input and output."""
    parser = Parser(
        "exec-server ssh-proxy",
        usage="[OPTIONS] <HOST>",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument("host", metavar="<HOST>", help="the host that was given to ssh")
    parser.add_argument("--url", metavar="<URL>", help="the server, if HOST is not its name")
    parser.add_argument(
        "--token-file", metavar="<PATH>", type=path, help="file that holds the bearer token"
    )
    values = parser.parse_words(words)
    from exec_server.cli.ssh_door.ssh_config_command import host_key, require_asyncssh
    from exec_server.ssh_door.stanza import split_target

    name, process = split_target(values.host)
    try:
        require_asyncssh()
        key = host_key().private_key()
    except (ConfigurationError, OSError) as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    return _serve(values.url or name, process, values.token_file, key)


def _serve(server: str, process: str | None, token_file: str | None, key: bytes) -> int:
    from exec_server.ssh_door.proxy_socket import take_socket

    socket = take_socket()
    from exec_server.cli.event_loop import run_to_exit_status
    from exec_server.cli.options import token_in_file
    from exec_server.cli.ssh_door.door_target import open_target
    from exec_server.ssh_door.door import serve

    async def run() -> int:
        token = None if token_file is None else token_in_file(token_file)
        async with open_target(server, process, token=token, token_file=token_file) as target:
            await serve(socket.sock, target, key)
        socket.finish()
        return exit_codes.OK

    return run_to_exit_status(run, log_level="error")
