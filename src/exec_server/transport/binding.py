"""Sockets to listen on: bound here, or passed on by a service manager such as systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

import msgspec

from exec_server.errors import ConfigurationError
from exec_server.transport.address import ListenAddress, SystemdAddress, TcpAddress, UnixAddress

_BACKLOG = 1024
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
# The first descriptor that systemd passes on: sd_listen_fds(3).
_FIRST_PASSED = 3
_PASSED_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class UnixAccess(msgspec.Struct, frozen=True):
    """The permissions of a Unix socket in the file system."""

    mode: int = 0o600
    # The name or number of a group; None keeps that of the process.
    group: str | None = None

    @property
    def is_shared(self) -> bool:
        """True if other users than the owner may connect."""
        return bool(self.mode & 0o066)


PRIVATE = UnixAccess()


class BoundSocket(msgspec.Struct, frozen=True):
    """A socket that listens at *address*."""

    sock: socket.socket
    address: TcpAddress | UnixAddress
    # The file that is removed at the end, if there is one of ours.
    unlink: str | None = None

    def url(self, *, is_secure: bool) -> str:
        """The URL for clients; TLS *is_secure*, and a Unix socket has none."""
        url = self.address.url
        return url.replace("ws:", "wss:", 1) if is_secure else url


def bind(address: ListenAddress, access: UnixAccess) -> BoundSocket:
    """A socket that listens at *address*. Raises ConfigurationError."""
    if isinstance(address, TcpAddress):
        return _bind_tcp(address)
    if isinstance(address, UnixAddress):
        return _bind_unix(address, access)
    assert isinstance(address, SystemdAddress)
    return passed_socket(os.environ)


def _bind_tcp(address: TcpAddress) -> BoundSocket:
    """The event loop's own way uses a resolver, which starts threads."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # As text it would be encoded by IDNA, whose tables take a while to load.
        host = address.host.encode()
        sock.bind(socket.getaddrinfo(host, address.port, family, flags=_NUMERIC)[0][4])
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise ConfigurationError(f"{_os_error(exc)}: {address.url}") from exc
    return BoundSocket(sock, TcpAddress(*sock.getsockname()[:2]))


def _bind_unix(address: UnixAddress, access: UnixAccess) -> BoundSocket:
    """A stale socket at the path is replaced. The socket is never more open than *access* says."""
    from exec_server.transport.stale_sockets import remove_stale_socket

    path = os.path.abspath(address.path)
    group = _group_id(access.group)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o177)
    try:
        remove_stale_socket(path)
        sock.bind(path)
        if group != -1:
            os.chown(path, -1, group, follow_symlinks=False)
        if access.mode != 0o600:
            os.chmod(path, access.mode)
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise ConfigurationError(f"{_os_error(exc)}: {path}") from exc
    finally:
        os.umask(previous)
    return BoundSocket(sock, UnixAddress(path), unlink=path)


def _group_id(group: str | None) -> int:
    """The number of a group; -1 for none. Raises ConfigurationError."""
    if group is None:
        return -1
    if group.isascii() and group.isdigit():
        return int(group)
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigurationError(f"there is no group `{group}`") from None


def _os_error(exc: OSError) -> str:
    if exc.errno is None:
        return str(exc)
    text = "Address in use" if exc.errno == 98 else os.strerror(exc.errno)
    return f"{text} (os error {exc.errno})"


# Socket activation.


def passed_socket(environ: MutableMapping[str, str]) -> BoundSocket:
    """The one socket that a service manager has passed on. Raises ConfigurationError.

    The variables that tell of it are removed, so that no child takes them for its own.
    """
    pid, count, _ = (environ.pop(name, "") for name in _PASSED_VARIABLES)
    if pid != str(os.getpid()) or count in ("", "0"):
        raise ConfigurationError(
            "--listen systemd needs a socket from systemd (LISTEN_FDS): start the service by its "
            ".socket unit"
        )
    if count != "1":
        raise ConfigurationError(f"systemd has passed {count} sockets, and one is served")
    try:
        os.set_inheritable(_FIRST_PASSED, False)
        sock = socket.socket(fileno=_FIRST_PASSED)
        is_listening = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError as exc:
        raise ConfigurationError(f"the socket of systemd cannot be used: {exc.strerror}") from exc
    if sock.type != socket.SOCK_STREAM or not is_listening:
        sock.close()
        raise ConfigurationError("the socket of systemd does not listen: it needs ListenStream=")
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return BoundSocket(sock, UnixAddress(_unix_path(name)))
    return BoundSocket(sock, TcpAddress(*name[:2]))


def _unix_path(name: str | bytes) -> str:
    """The path of a Unix socket; one without a file begins with an @."""
    text = name if isinstance(name, str) else os.fsdecode(name)
    return "@" + text[1:] if text.startswith("\0") else text
