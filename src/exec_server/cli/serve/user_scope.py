"""A control group of the server's own in a systemd user session: one call on the user's bus.

A server that a person starts at a prompt is in the group of that login, among other programs, or in
one that root owns; neither can have groups for commands in it. The user's service manager puts the
server into a scope that is delegated to it. It is asked once, before the server has any child.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import socket
import threading
from collections.abc import Mapping

logger = logging.getLogger(__name__)

# The bus answers within milliseconds. One that does not must not keep a server from starting.
PATIENCE = 2.0
_CONTROLLERS = {"memory", "pids"}


class ScopeFailed(Exception):
    """The user's service manager was asked for a scope, and did not give one."""


class Surroundings:
    """What the machine says about this process; tests say other things."""

    uid = os.geteuid()
    systemd = "/run/systemd/system"
    own_groups = "/proc/self/cgroup"
    hierarchy = "/sys/fs/cgroup"
    lingering = "/var/lib/systemd/linger"

    def group(self) -> str:
        """The path of the own group within the hierarchy of version 2; empty if there is none."""
        try:
            with open(self.own_groups, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read().splitlines()
        except OSError:
            return ""
        return next((line[3:] for line in lines if line.startswith("0::/")), "")

    def lists(self, group: str, file: str) -> list[str]:
        """The words of a file of *group*; none if it cannot be read."""
        try:
            with open(f"{self.hierarchy}{group}/{file}", encoding="ascii") as text:
                return text.read().split()
        except (OSError, ValueError):
            return []

    def is_lingering(self) -> bool:
        """True if the user's service manager outlives the user's logins."""
        try:
            return os.path.exists(os.path.join(self.lingering, pwd.getpwuid(self.uid).pw_name))
        except KeyError:
            return False

    def bus(self, environ: Mapping[str, str]) -> str | None:
        """The address of the user's bus; None without one."""
        if address := environ.get("DBUS_SESSION_BUS_ADDRESS"):
            return address
        place = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{self.uid}"
        path = os.path.join(place, "bus")
        return f"unix:path={path}" if os.path.exists(path) else None


HERE = Surroundings()


def reason_against(found: Surroundings, environ: Mapping[str, str]) -> str | None:
    """Why this process needs no scope of its own, or cannot have one; None if it should ask."""
    group = found.group()
    if found.uid == 0:
        return "root needs none"
    if not os.path.isdir(found.systemd) or not group:
        return "systemd does not manage the control groups of this machine"
    if not set(found.lists("", "cgroup.controllers")) >= _CONTROLLERS:
        return "control groups of version 2 have no controllers here"
    unit = _unit(group)
    if not unit.endswith(".scope"):
        # Its service manager would lose sight of it.
        return f"this process belongs to the unit {unit or group}: it needs Delegate=yes"
    if _is_own(found, group):
        return "the control group of this process has no other process in it"
    if f"/user@{found.uid}.service/" not in group and not found.is_lingering():
        # The manager ends with the last login, and everything that it manages ends with it.
        return (
            "a scope would end with the last login of this user: `loginctl enable-linger` allows it"
        )
    if found.bus(environ) is None:
        return "the user's bus was not found"
    return None


def _unit(group: str) -> str:
    """The innermost unit in a path of groups."""
    names = [name for name in group.split("/") if name.endswith((".scope", ".service"))]
    return names[-1] if names else ""


def _is_own(found: Surroundings, group: str) -> bool:
    is_writable = os.access(f"{found.hierarchy}{group}/cgroup.procs", os.W_OK)
    return is_writable and set(found.lists(group, "cgroup.procs")) <= {str(os.getpid())}


def enter_own_scope(environ: Mapping[str, str], found: Surroundings = HERE) -> str | None:
    """Ask for a scope if that helps; the reason if this process has none afterwards.

    A failure only means that limits are held less exactly.
    """
    why = reason_against(found, environ)
    if why is None:
        try:
            name = ask_for_scope(environ, found)
        except ScopeFailed as exc:
            why = str(exc)
        else:
            logger.info("the server is in a control group of its own: %s", name)
            return None
    logger.debug("the server has no control group of its own: %s", why)
    return why


def ask_for_scope(
    environ: Mapping[str, str], found: Surroundings = HERE, *, patience: float = PATIENCE
) -> str:
    """Have this process moved into a new scope; its name. Raises ScopeFailed."""
    name = f"exec-server-{os.getpid()}-{os.urandom(4).hex()}.scope"
    address = found.bus(environ)
    failures: list[str] = []
    line = _Line()
    # A thread, because the library waits for the first answer of a bus without a deadline.
    asking = threading.Thread(
        target=_ask, args=(address, name, patience, line, failures), name="ask systemd", daemon=True
    )
    asking.start()
    asking.join(patience)
    if asking.is_alive():
        line.cut()
        raise ScopeFailed(f"the user's service manager did not answer in {patience:g} s")
    if failures:
        raise ScopeFailed(failures[0])
    if not found.group().endswith(f"/{name}"):
        raise ScopeFailed("the user's service manager did not move this process")
    return name


class _Line:
    """The connection to the bus, which can be cut while a thread waits for what the bus says.

    Without that, a bus could keep the thread busy for good, or be asked when the server has
    children.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._is_cut = False

    def use(self, sock: socket.socket) -> socket.socket:
        with self._lock:
            self._sock = sock
        if self._is_cut:
            self.cut()
        return sock

    def cut(self) -> None:
        """End the connection; one that is used later is ended at once."""
        with self._lock:
            self._is_cut = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)


def _ask(address: str | None, name: str, patience: float, line: _Line, failures: list[str]) -> None:
    # Only a server in a login session needs this.
    from jeepney import DBusAddress, MatchRule, MessageFlag, message_bus, new_method_call
    from jeepney.bus import get_bus
    from jeepney.io.blocking import DBusConnection, prep_socket
    from jeepney.wrappers import DBusErrorResponse, unwrap_msg

    interface = "org.freedesktop.systemd1.Manager"
    manager = DBusAddress("/org/freedesktop/systemd1", "org.freedesktop.systemd1", interface)
    properties = [
        ("Description", ("s", "exec-server, with the commands that it runs")),
        ("PIDs", ("au", [os.getpid()])),
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
    ]
    body: tuple[object, ...] = (name, "fail", properties, [])
    start = new_method_call(manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", body)
    # A bus without a manager must not start something of that name.
    start.header.flags |= MessageFlag.no_auto_start
    removed = MatchRule(
        type="signal", interface=interface, member="JobRemoved", path=manager.object_path
    )
    try:
        with (
            line.use(prep_socket(get_bus(address), timeout=patience)) as sock,
            DBusConnection(sock) as bus,
        ):
            unwrap_msg(bus.send_and_get_reply(message_bus.AddMatch(removed), timeout=patience))
            with bus.filter(removed, bufsize=64) as done:
                (job,) = unwrap_msg(bus.send_and_get_reply(start, timeout=patience))
                while True:
                    ended = bus.recv_until_filtered(done, timeout=patience)
                    if ended.body[1] == job:
                        break
        if ended.body[3] != "done":
            failures.append(f"systemd could not start {name}: {ended.body[3]}")
    except DBusErrorResponse as exc:
        failures.append(f"systemd refused {name}: {exc.name}: {_text(exc.data)}")
    except Exception as exc:
        # The library says in many ways that a bus has spoken nonsense.
        failures.append(f"the user's bus: {str(exc) or type(exc).__name__}")


def _text(data: object) -> str:
    return str(data[0]) if isinstance(data, (tuple, list)) and data else ""
