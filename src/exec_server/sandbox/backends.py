"""Which backend can enforce a Plan here; the one place where a policy is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cached_property

import msgspec

from exec_server.sandbox import landlock, seccomp
from exec_server.sandbox.bubblewrap import find
from exec_server.sandbox.model import Backend, Plan, Unenforceable

_TRIAL_SECONDS = 10.0
_NEEDED_OPTIONS = ("--args", "--clearenv", "--info-fd", "--perms", "--seccomp", "--new-session")
# The trial is as strict as any sandbox of ours, so that what works here works for all.
_TRIAL = (
    "--unshare-user --unshare-pid --unshare-ipc --unshare-net --new-session --die-with-parent "
    "--cap-drop ALL --ro-bind / / --dev /dev --proc /proc --ro-bind /proc/sys /proc/sys "
    "-- /bin/true"
).split()


_IS_LINUX = sys.platform == "linux"
# macOS has Seatbelt instead, but Apple does not document its profiles.
_ELSEWHERE = "sandboxes are enforced on Linux only"


class BackendUnavailable(Unenforceable):
    """The policy makes sense, but this machine lacks what would enforce it."""


class Bubblewrap(msgspec.Struct, frozen=True):
    """A bubblewrap that works here, and the features that only some versions have."""

    path: str
    has_bind_fd: bool
    has_argv0: bool


class Report(msgspec.Struct, frozen=True):
    """Tells if a backend works here; if not, what stops it, and the command that helps."""

    backend: Backend
    works: bool
    # What was found, such as a path or a version.
    found: str | None = None
    obstacle: str | None = None
    remedy: str | None = None


class Backends:
    """The backends of this machine; each is tried once, when first asked for."""

    def choose(self, plan: Plan, *, prefers_landlock: bool = False) -> Backend:
        """The strongest backend that enforces all of *plan*; Unenforceable when none does."""
        if not plan.needs_namespaces and not plan.policy.is_proxied:
            if plan.policy.network == "enabled":
                return "none"
            _refuse_elsewhere()
            return "seccomp"
        _refuse_elsewhere()
        if plan.policy.is_proxied:
            # Only a network namespace keeps a command from every address except the proxy's.
            return self._bubblewrap_or_refuse(None)
        if prefers_landlock:
            return self._landlock_or_refuse(plan, "the older Landlock sandbox was asked for")
        if self.bubblewrap is not None:
            return "bubblewrap"
        return self._bubblewrap_or_refuse(plan)

    def _bubblewrap_or_refuse(self, plan: Plan | None) -> Backend:
        if self.bubblewrap is not None:
            return "bubblewrap"
        reason = f"bubblewrap is unavailable: {self.bubblewrap_report.obstacle}"
        if plan is None:
            raise BackendUnavailable(reason)
        return self._landlock_or_refuse(plan, reason)

    def _landlock_or_refuse(self, plan: Plan, reason: str) -> Backend:
        if not self.landlock_report.works:
            raise BackendUnavailable(f"{reason}; {self.landlock_report.obstacle}")
        try:
            landlock.check(plan)
        except Unenforceable as exc:
            raise BackendUnavailable(f"{reason}; this policy requires bubblewrap: {exc}") from exc
        return "landlock"

    def is_known(self, backend: Backend) -> bool:
        """True if *backend* was tried already, so that asking about it takes no time."""
        return f"{backend}_report" in self.__dict__

    @property
    def reports(self) -> tuple[Report, ...]:
        """A report about every backend, the strongest first."""
        return self.bubblewrap_report, self.landlock_report, self.seccomp_report

    # The trials.

    @cached_property
    def bubblewrap(self) -> Bubblewrap | None:
        """bubblewrap, or None when it does not work; `bubblewrap_report` says why."""
        if not self.bubblewrap_report.works:
            return None
        path = self.bubblewrap_report.found or ""
        options = _run(path, "--help").stdout
        return Bubblewrap(path, "--bind-fd" in options, "--argv0" in options)

    @cached_property
    def bubblewrap_report(self) -> Report:
        if not _IS_LINUX:
            return Report("bubblewrap", False, None, _ELSEWHERE)
        path = find("bwrap")
        if path is None:
            return _missing("bubblewrap", "bubblewrap is not installed", "bubblewrap")
        if not self.seccomp_report.works:
            return msgspec.structs.replace(self.seccomp_report, backend="bubblewrap")
        try:
            options = _run(path, "--help").stdout
            lacking = [option for option in _NEEDED_OPTIONS if option not in options]
            trial = _run(path, *_TRIAL)
        except (OSError, subprocess.TimeoutExpired) as exc:
            return Report("bubblewrap", False, path, str(exc))
        if lacking:
            return Report(
                "bubblewrap",
                False,
                path,
                f"{path} is too old: it does not know {' '.join(lacking)}",
                "install bubblewrap 0.5 or newer",
            )
        if trial.returncode:
            said = trial.stderr.strip() or f"{path} ended with status {trial.returncode}"
            obstacle, remedy = what_stops_namespaces()
            return Report("bubblewrap", False, path, f"{said} ({obstacle})", remedy)
        return Report("bubblewrap", True, path)

    @cached_property
    def landlock_report(self) -> Report:
        if not self.seccomp_report.works:
            return msgspec.structs.replace(self.seccomp_report, backend="landlock")
        try:
            version = landlock.abi()
        except OSError:
            return Report(
                "landlock",
                False,
                None,
                "Landlock is not enabled in this kernel, or a container's filter refuses it",
                "boot with lsm=landlock,... (see /sys/kernel/security/lsm), or let the container "
                "use landlock_create_ruleset",
            )
        found = f"ABI {version}"
        if version < landlock.LEAST_ABI:
            obstacle = f"Landlock ABI {landlock.LEAST_ABI} is needed to scope signals, not {found}"
            return Report("landlock", False, found, obstacle, "use Linux 6.12 or newer")
        return Report("landlock", True, found)

    @cached_property
    def seccomp_report(self) -> Report:
        if not _IS_LINUX:
            return Report("seccomp", False, None, _ELSEWHERE)
        try:
            seccomp.program(seccomp.Kind("related", "nothing"))
        except Unenforceable as exc:
            return _missing("seccomp", str(exc), "libseccomp2", "libseccomp")
        return Report("seccomp", True, "libseccomp")


# What a machine offers does not change while a server runs.
HERE = Backends()


def _refuse_elsewhere() -> None:
    if not _IS_LINUX:
        raise BackendUnavailable(_ELSEWHERE)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={},
        timeout=_TRIAL_SECONDS,
        check=False,
    )


def _missing(backend: Backend, obstacle: str, debian: str, other: str | None = None) -> Report:
    """A report about a package that is not installed, with the command that installs it."""
    other = other or debian
    for tool, command in (
        ("apt-get", f"apt-get install {debian}"),
        ("dnf", f"dnf install {other}"),
        ("apk", f"apk add {other}"),
        ("pacman", f"pacman -S {other}"),
    ):
        if find(tool):
            return Report(backend, False, None, obstacle, command)
    return Report(backend, False, None, obstacle, f"install {other}")


def what_stops_namespaces() -> tuple[str, str | None]:
    """Why a user namespace cannot be made here, as far as the system tells, and what helps."""
    for name, bad, obstacle in (
        ("user/max_user_namespaces", "0", "user namespaces are switched off"),
        ("kernel/unprivileged_userns_clone", "0", "user namespaces are for root only"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor keeps programs without a profile from using user namespaces",
        ),
    ):
        if _setting(name) == bad:
            good = {"0": "1", "1": "0"}[bad] if not name.startswith("user/") else "15000"
            return obstacle, f"sysctl -w {name.replace('/', '.')}={good}"
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return (
            "the container's seccomp or AppArmor profile refuses user namespaces or mounts",
            "start the container with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined",
        )
    return "the system refuses user namespaces or mounts in them", None


def _setting(name: str) -> str | None:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
