"""What a supervisor is told about its command: a Plan as places, and the calls that it watches."""

from __future__ import annotations

import functools
import os
import stat
import threading
from typing import Any, NamedTuple

from exec_server.sandbox import own_places, seccomp
from exec_server.sandbox.bubblewrap import find
from exec_server.sandbox.landlock import ALWAYS_WRITABLE
from exec_server.sandbox.model import Access, Hide, Plan, Show, Unenforceable
from exec_server.sandbox.placeholders import default_folder
from exec_server.sandbox.policy import is_within
from exec_server.sandbox.protected_names import NAMES
from exec_server.sandbox.resolved_rules import FRESH, PROC
from exec_server.sandbox.supervisor import judge, notifications
from exec_server.sandbox.supervisor.watched_calls import (
    WatchedCalls,
    is_known_machine,
    watched_calls,
)


class Watching(NamedTuple):
    """That a command is supervised: the supervisor's end of the socket to the server, and more."""

    # It stays open here.
    channel: int
    # How many seconds a refused open waits for a grant.
    hold: float = 0.0
    # What was granted before, to the session: paths, each with "write" or "read", and unix sockets,
    # each with "socket".
    granted: tuple[tuple[bytes, str], ...] = ()
    # True if the first message on the socket brings a file for the records.
    stores: bool = False


def scopes_reads(plan: Plan) -> bool:
    """True if the policy closes files to readers; then all opens have to be watched."""
    policy = plan.policy
    is_narrowed = any(rule.access is Access.DENY for rule in policy.rules) or bool(policy.globs)
    return policy.is_managed and (not plan.shows_host or is_narrowed)


def calls_to_watch(plan: Plan, kind: seccomp.Kind) -> WatchedCalls:
    """The filters for a command with *plan*. Raises Unenforceable as `seccomp.program`."""
    return watched_calls(kind, writes=plan.policy.is_managed, reads=scopes_reads(plan))


def orders(plan: Plan, watching: Watching, calls: WatchedCalls, *, is_landlock: bool) -> Any:
    """Everything that the supervisor has to know, in plain values."""
    trusted = (path for path, _ in own_places.trusted())
    own = (*own_places.protected(), *own_places.hidden(), *trusted, default_folder())
    return {
        "filter": calls.filter,
        "calls": calls.names,
        "refused": calls.refused,
        "architecture": calls.architecture,
        "learns": False,
        "hold": watching.hold,
        "stores": watching.stores,
        "granted": watching.granted,
        "places": _places(plan),
        "exceptions": {
            "free": ALWAYS_WRITABLE if is_landlock else (),
            "fresh": (PROC,) if is_landlock else FRESH,
            "protected": NAMES if plan.policy.protects_metadata else (),
            "own": own,
        },
    }


def _places(plan: Plan) -> list[tuple[bytes, str, str]]:
    """Each place of *plan* with the access there, and the rule that limits it."""
    if not plan.policy.is_managed:
        return [(b"/", judge.WRITE, "")]
    places = {b"/": (judge.READ, judge.OUTSIDE_WRITABLE)}
    if not plan.shows_host:
        places[b"/"] = (judge.CLOSED, judge.OUTSIDE_READABLE)
    for step in plan.mounts:
        if isinstance(step, Show) and step.is_writable:
            places[step.path] = (judge.WRITE, "")
        else:
            is_closed = isinstance(step, Hide) and step.mode == 0
            places[step.path] = (judge.CLOSED if is_closed else judge.READ, _rule(step, plan))
    return [(path, *place) for path, place in places.items()]


def _rule(step: Show | Hide, plan: Plan) -> str:
    path = step.path
    if path in plan.own_secrets or any(is_within(path, own) for own in own_places.protected()):
        return judge.OWN_PLACE
    named = {rule.path: rule.access for rule in plan.policy.rules}
    if path not in named and path.rpartition(b"/")[2] in NAMES:
        return judge.PROTECTED_NAME
    if isinstance(step, Hide) and step.mode == 0:
        return judge.DENIED_PATH
    if any(is_within(path, root) for root, access in named.items() if access is Access.WRITE):
        return judge.READ_ONLY_PATH
    return judge.OUTSIDE_WRITABLE


@functools.cache
def obstacle() -> str | None:
    """Why no command can be supervised on this machine; None if one can. It takes no time."""
    if not is_known_machine():
        return f"the calls of {os.uname().machine} are not known"
    path = find("bwrap")
    if path is not None and os.stat(path).st_mode & stat.S_ISUID:
        return f"{path} is set-user-ID, and a supervised program gains no privileges"
    try:
        # A call that no program makes.
        never = seccomp.SyscallRule("lookup_dcookie")
        filter_ = seccomp.compiled((never,), action=seccomp.NOTIFY, foreign=seccomp.ALLOW)
    except Unenforceable as exc:
        return str(exc)
    return _tried(filter_)


def _tried(filter_: bytes) -> str | None:
    """Why the kernel gives no listener; a thread of its own tries, as a filter stays for ever."""
    found: list[str] = []

    def attempt() -> None:
        try:
            os.close(notifications.install(filter_))
        except OSError as exc:
            found.append(f"the kernel gives no listener for system calls: {exc.strerror}")

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found[0] if found else None


def obstacle_to_landlock(*, is_other_user: bool = False) -> str | None:
    """Why a command behind Landlock alone cannot be supervised; None if it can.

    *is_other_user* says that it does not run as the server's own user.
    """
    if os.geteuid() == 0 and not is_other_user:
        return None
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return None
    if scope == "0":
        return None
    return f"kernel.yama.ptrace_scope is {scope}, so the supervisor cannot read what a call names"
