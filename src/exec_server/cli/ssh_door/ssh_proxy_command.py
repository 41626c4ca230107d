"""`exec-server ssh-proxy`: the ProxyCommand of OpenSSH, an ssh server for one connection.

Modules are imported late: if a door is open already, nearly none of them is needed.
"""

from __future__ import annotations

from pathlib import Path

from exec_server.cli.ssh_door.known_door import door_of
from exec_server.cli.ssh_door.proxy_words import ProxyWords, read_words


def ssh_proxy_command(words: list[str]) -> int:
    """Serve one ssh connection on standard input and output."""
    wanted = read_words(words)
    path = door_of(words, wanted.key_dir)
    from exec_server.ssh_door.open_doors import find_door

    door = find_door(path) if wanted.linger else None
    if door is None:
        return _open_door(wanted, Path(path))
    from exec_server.ssh_door.proxy_socket import hand_over

    hand_over(door)
    return 0


def _open_door(wanted: ProxyWords, path: Path) -> int:
    from exec_server.cli import exit_codes
    from exec_server.cli.loading import loading

    with loading():
        from exec_server.cli.log_setup import print_error
        from exec_server.cli.ssh_door.door_needs import host_key, require_asyncssh
        from exec_server.errors import ConfigurationError

    try:
        require_asyncssh()
        key = host_key(wanted.key_dir).private_key()
    except (ConfigurationError, OSError) as exc:
        print_error(str(exc))
        return exit_codes.FAILED
    return _serve(wanted, path, key)


def _serve(wanted: ProxyWords, path: Path, key: bytes) -> int:
    from exec_server.ssh_door import proxy_socket
    from exec_server.ssh_door.descriptor_passing import takes_descriptors

    # Only a process in the background can stay after its first connection.
    linger = wanted.linger if takes_descriptors() else 0.0
    first = proxy_socket.take_socket()

    import socket

    from exec_server.cli import exit_codes
    from exec_server.cli.loading import loading

    with loading():
        from exec_server.transport import lean_picows

        # There are threads that copy, and asyncssh reads its options in one.
        lean_picows.use()
        from exec_server.cli.event_loop import run_to_exit_status
        from exec_server.cli.options import token_in_file
        from exec_server.cli.ssh_door.door_target import open_target
        from exec_server.ssh_door import quick_asyncssh  # noqa: F401 (it comes before `door`)
        from exec_server.ssh_door.door import serve
        from exec_server.ssh_door.doorkeeper import Doorkeeper
        from exec_server.ssh_door.stanza import split_target

    name, process = split_target(wanted.host)
    if linger:
        proxy_socket.let_go_of_errors()

    async def serve_one(sock: socket.socket) -> None:
        token_file = wanted.token_file
        token = None if token_file is None else token_in_file(token_file)
        async with open_target(
            wanted.url or name, process, token=token, token_file=token_file, keep=wanted.keep
        ) as target:
            await serve(sock, target, key)

    async def run() -> int:
        await Doorkeeper(path, serve_one, linger=linger).run(first.sock)
        first.finish()
        return exit_codes.OK

    return run_to_exit_status(run, log_level="error")
