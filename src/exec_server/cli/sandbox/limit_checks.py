"""The check of `exec-server doctor` for limits: what this machine holds, and by which mechanism."""

from __future__ import annotations

import os
from collections.abc import Mapping

from exec_server.cli.sandbox.doctor_checks import Check
from exec_server.protocol.resources import GrantedLimit

# Enough for a command that does nothing.
TRIED = {
    "memory": 1 << 30,
    "pids": 1000,
    "cpuRate": 1,
    "cpuSeconds": 60,
    "wall": 60,
    "outputBytes": 1 << 20,
    "disk": 1 << 30,
    "openFiles": 64,
}
# The limits that control groups hold exactly.
GROUPED = ("memory", "pids", "cpuRate")
_WORDS = {"watched": "watched", "none": "not held"}


def limit_check(
    granted: Mapping[str, GrantedLimit],
    why: str,
    *,
    is_root: bool,
    no_scope: str | None = None,
) -> Check:
    """What became of the limits of a trial; *why* is the reason why a limit is not held.

    *no_scope* says why systemd has not given a control group to this process.
    """
    found = _found(granted)
    if all(granted[name].mechanism in ("cgroup1", "cgroup2") for name in GROUPED):
        return Check("limits", True, found)
    if no_scope is not None and not is_root:
        why += f"; no group from systemd: {no_scope}"
    return Check("limits", False, found, f"{found}: {why}", remedy(is_root=is_root))


def _found(granted: Mapping[str, GrantedLimit]) -> str:
    names: dict[str, list[str]] = {}
    for name, each in granted.items():
        names.setdefault(each.mechanism, []).append(name)
    return "; ".join(
        f"{', '.join(held)} {_WORDS.get(mechanism, f'by {mechanism}')}"
        for mechanism, held in names.items()
    )


def remedy(*, is_root: bool, has_systemd: bool | None = None) -> str:
    """The one line that lets control groups hold what they can."""
    if has_systemd is None:
        has_systemd = os.path.isdir("/run/systemd/system")
    if has_systemd and is_root:
        return "Delegate=yes in the [Service] section of the server's unit"
    if has_systemd:
        return (
            "systemd-run --user --scope -p Delegate=yes exec-server ..., Delegate=yes in a unit, "
            "or `loginctl enable-linger`, after which a server asks for a scope itself"
        )
    if is_root:
        return (
            "mount /sys/fs/cgroup writable; a container needs a control group namespace of its own"
        )
    return "run the server as root, or chown a control group to its user and start the server in it"
