"""In the keeper: all limited trees, which are looked at until they are over.

The keeper imports this file with the first start that has limits, where only the standard
library is available. A tree that reaches a limit is killed as a whole. What the first process
of a command leaves behind stays limited until the last of them is gone. The module is long because
one object holds all limits of one keeper, whatever holds each of them.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from importlib.util import module_from_spec, spec_from_file_location

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from exec_server.process.limiting import cgroup_places, cgroups, mechanisms, tree_usage
    from exec_server.process.limiting.cgroups import Group
    from exec_server.process.limiting.limited_start import LimitedStart
    from exec_server.process.limiting.limited_tree import LimitedTree
    from exec_server.process.limiting.spare_groups import SpareGroups
else:

    def load(file):
        """Load *file*, which is beside this one."""
        places = ("cgroup_places.py", "cgroups.py", "spare_groups.py", "tree_usage.py")
        assert file in (*places, "limited_start.py", "limited_tree.py", "mechanisms.py")
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
        spec = spec_from_file_location(file.removesuffix(".py"), path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    cgroup_places, cgroups = load("cgroup_places.py"), load("cgroups.py")
    mechanisms, tree_usage = load("mechanisms.py"), load("tree_usage.py")
    LimitedStart = load("limited_start.py").LimitedStart
    LimitedTree = load("limited_tree.py").LimitedTree
    SpareGroups = load("spare_groups.py").SpareGroups

# A group that a command has left processes in is looked at this often, if nothing is watched.
_LINGER_SECONDS = 1.0
# bubblewrap's own first process is in the group, too.
_HELPERS = 1
# So long a tree that keeps forking is killed before something else is done.
_KILL_SECONDS = 0.2
# What a program starts while its hard limits are being lowered is found in so many rounds at most;
# one is enough for a program that has started nothing.
_SEAL_ROUNDS = 20
# poll(2) takes no more than 24 days.
_LONGEST_WAIT = 3600.0
# A program that was ended by SIGXFSZ has written so much of its limit, if that is the reason.
_NEARLY = 0.9
# The longest share of the time that exact readings of memory may take.
_SHARE = 0.05


# What a group bounds: a mechanism, a controller and a value each.
Bounds = tuple[tuple[str, str, float], ...]
# A part of this that bounds nothing.
_COUNTS_CPU = ("", "cpuacct", 0.0)


class LimitsRefused(ValueError):
    """The limits of a start cannot be held, and it requires them."""

    part = "limits"


class Limiter:
    """Limits what the programs of *keeper* use.

    The other arguments are the keeper's own functions of these names.
    """

    def __init__(
        self,
        keeper: Any,
        *,
        entries: Callable[..., Any],
        fork_exec: Callable[..., int],
        posix_spawn: Callable[..., int],
        mark_of: Callable[[int], int],
    ) -> None:
        self._keeper = keeper
        self._starters = {
            "entries": entries,
            "fork_exec": fork_exec,
            "posix_spawn": posix_spawn,
        }
        self._mark_of = mark_of
        self._spares = SpareGroups(self._spare_group)
        self._trees: dict[int, LimitedTree] = {}
        # Trees whose first process was reaped, so that its pid may be another's.
        self._left: list[LimitedTree] = []
        self._areas: cgroups.Areas | None = None
        self._facilities: mechanisms.Facilities | None = None
        # What needs no group, if no limit that was asked for yet does.
        self._groupless = mechanisms.Facilities(can_watch=tree_usage.can_watch())
        self._ours: set[int] = set()
        # The limits that were chosen last, and what they were chosen from.
        self._last_key: Any = None
        self._last_choices: dict[str, mechanisms.Choice] = {}
        self._looked_at = 0.0

    # Starting.

    def prepare(self, limits: dict[str, Any], *, is_wrapped: bool) -> LimitedStart:
        """What a start with *limits* needs; *is_wrapped* says that it is in bubblewrap.

        Raises LimitsRefused if the limits are required and cannot be held.
        """
        self._ours.update(limits.get("ours", ()))
        values = {name: limits[name] for name in mechanisms.NAMES if name in limits}
        offered = self._offered(values)
        while True:
            choices = self._choices(values, offered)
            refusal = mechanisms.refusal(choices) if limits.get("require") else None
            if refusal is not None:
                raise LimitsRefused(refusal)
            try:
                group = self._grouped(choices, helpers=_HELPERS if is_wrapped else 0)
            except cgroups.GroupFailed as exc:
                offered = offered.without(exc.mechanism, exc.controller, str(exc))
                if exc.is_lasting:
                    self._facilities = offered
                continue
            return LimitedStart(choices, group, **self._starters)

    def _choices(
        self, values: dict[str, float], offered: mechanisms.Facilities
    ) -> dict[str, mechanisms.Choice]:
        """As `choose`; most commands of a client have the same limits."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        key = (tuple(values.items()), offered, hard)
        if key != self._last_key:
            self._last_choices = mechanisms.choose(
                values,
                offered,
                hard_files=None if hard == resource.RLIM_INFINITY else hard,
                output_grain=self._keeper.output_grain,
            )
            self._last_key = key
        return self._last_choices

    def _offered(self, values: dict[str, float]) -> mechanisms.Facilities:
        needs_groups = any(name in values for name in (*mechanisms.CONTROLLERS, "cpuSeconds"))
        if self._facilities is None and needs_groups:
            self._areas = cgroups.Areas(_places(), self._own_processes)
            self._facilities = mechanisms.Facilities(
                cgroup2=self._areas.controllers("cgroup2"),
                cgroup1=self._areas.controllers("cgroup1"),
                can_watch=self._groupless.can_watch,
                why=self._areas.why,
            )
        return self._facilities or self._groupless

    def _own_processes(self) -> set[int]:
        return tree_usage.descendants(self._ours | {os.getpid()} | set(_durable_keepers()))

    def _grouped(self, choices: dict[str, mechanisms.Choice], *, helpers: int) -> Group | None:
        """The group that holds some of *choices*. Raises GroupFailed."""
        if self._areas is None:
            return None
        bounds: Bounds = tuple(
            (
                choice.mechanism,
                mechanisms.CONTROLLERS[name],
                choice.value + (helpers * (name == "pids")),
            )
            for name, choice in choices.items()
            if choice.mechanism in ("cgroup1", "cgroup2")
        )
        if "cpuSeconds" in choices:
            bounds += (_COUNTS_CPU,)
        if not bounds:
            return None
        group = self._spares.take(bounds) or self._new_group(bounds)
        if group is not None:
            try:
                group.open_entrances()
            except OSError as exc:
                self._spares.give_back(group, is_reusable=False)
                why = exc.strerror or str(exc)
                raise cgroups.GroupFailed(*bounds[0][:2], why, is_lasting=False) from exc
        return group

    def _new_group(self, bounds: Bounds) -> Group | None:
        assert self._areas is not None
        group = self._areas.new_group()
        try:
            for bound in bounds:
                if bound == _COUNTS_CPU:
                    self._areas.count_cpu(group)
                else:
                    self._areas.add(group, *bound)
        except BaseException:
            group.remove()
            raise
        group.bounds = bounds
        return group if group.is_made else None

    def _spare_group(self, bounds: Bounds) -> Group | None:
        try:
            return self._new_group(bounds)
        except cgroups.GroupFailed:
            return None

    def started(self, limited: LimitedStart, pid: int, mark: int, namespace: Any) -> None:
        tree = LimitedTree(limited, pid, mark, namespace, tree_usage.TreeUsage())
        self._trees[pid] = tree
        if limited.has_to_be_sealed:
            self._seal(tree, limited)
        if tree.group is not None and tree.group.is_overfull:
            self._end(tree, "memory")

    def _seal(self, tree: LimitedTree, limited: LimitedStart) -> None:
        """Lower the hard limits of what runs already, until no process is found that had others."""
        limited.seal(tree.pid)
        for _ in range(_SEAL_ROUNDS if limited.inherited else 0):
            members = tree_usage.descendants(self._roots(tree))
            if not any([limited.seal(pid) for pid in members]):
                return

    def settled(self, limited: LimitedStart) -> None:
        """The start is over; if it has failed, nothing is left of it."""
        if limited.group is None:
            return
        limited.group.close_entrances()
        if all(tree.group is not limited.group for tree in (*self._trees.values(), *self._left)):
            self._spares.give_back(limited.group, is_reusable=False)

    # Looking.

    @property
    def wait_milliseconds(self) -> int | None:
        """How long the keeper may wait before the next look; None if there is nothing to see."""
        due = self._spares.due
        if not self._trees and not self._left and due is None:
            return None
        now = time.monotonic()
        trees = (*self._trees.values(), *self._left)
        ends = [tree.ends_at for tree in trees if tree.ends_at is not None]
        if due is not None:
            ends.append(due)
        if any(tree.is_looked_at for tree in trees):
            ends.append(self._looked_at + mechanisms.LOOK_SECONDS)
        elif self._left:
            ends.append(self._looked_at + _LINGER_SECONDS)
        if not ends:
            return None
        return max(0, round(min(min(ends) - now, _LONGEST_WAIT) * 1000) + 1)

    def look(self) -> None:
        """Look at all trees whose time has come."""
        now = time.monotonic()
        self._spares.work(now)
        trees = (*self._trees.values(), *self._left)
        for tree in trees:
            if tree.ends_at is not None and now >= tree.ends_at:
                tree.ends_at = None
                self._end(tree, "wall")
        if now < self._looked_at + mechanisms.LOOK_SECONDS:
            return
        self._looked_at = now
        for tree in trees:
            if tree.reached is not None:
                self._kill(tree)
            elif tree.is_looked_at:
                reached = self._reached(tree, now)
                if reached is not None:
                    self._end(tree, reached)
        self._left = [tree for tree in self._left if not self._is_over(tree)]

    def _reached(self, tree: LimitedTree, now: float) -> str | None:
        """The limit that *tree* has reached, if any."""
        if tree.has_memory_group and self._has_own_kills(tree):
            return "memory"
        if tree.reads_processes:
            members = self._members(tree)
            tree.known = tree.usage.look(members, written=tree.disk is not None)
            if tree.pids is not None and tree.usage.threads > tree.pids:
                return "pids"
            if tree.disk is not None and tree.usage.written_bytes > tree.disk:
                return "disk"
            if tree.memory is not None and self._is_too_large(tree, now):
                return "memory"
        if tree.cpu_seconds is not None and self._cpu(tree) > tree.cpu_seconds:
            return "cpuSeconds"
        return None

    def _has_own_kills(self, tree: LimitedTree) -> bool:
        assert tree.group is not None
        return _are_own_kills(tree.group.memory_kills())

    def _cpu(self, tree: LimitedTree) -> float:
        counted = None if tree.group is None else tree.group.cpu_seconds()
        return tree.usage.cpu_seconds if counted is None else counted

    def _is_too_large(self, tree: LimitedTree, now: float) -> bool:
        assert tree.memory is not None
        files = tree_usage.memory_files(tree.known)
        first = None if tree.namespace is None else tree.namespace.first()
        names = tree_usage.memory_names(first)
        # This bound is read quickly, and the exact value seldom needed.
        if tree_usage.resident_bytes(tree.known) + files + names <= tree.memory:
            return False
        if now < tree.read_again_at:
            return False
        begun = time.monotonic()
        memory = tree_usage.memory_bytes(tree.known, files) + names
        took = time.monotonic() - begun
        tree.read_again_at = now + took / _SHARE
        return memory > tree.memory

    def _members(self, tree: LimitedTree) -> set[int]:
        """The processes of *tree*, without bubblewrap's own."""
        if tree.group is not None:
            members = tree.group.members()
        else:
            # A tree that has too many is not read to its end.
            members = tree_usage.descendants(self._roots(tree), _most(tree))
        if tree.namespace is not None:
            members -= {tree.pid, tree.namespace.first()}
        return members

    def _roots(self, tree: LimitedTree) -> set[int]:
        """The children of the keeper that belong to *tree*: its first process, and orphans."""
        roots = {tree.pid} if tree.is_live else set()
        for pid in self._keeper.orphans():
            if pid in tree.known:
                stat = tree_usage.stat_of(pid)
                if stat is not None and stat.start == tree.known[pid]:
                    roots.add(pid)
            elif self._mark_of(pid) == tree.mark:
                roots.add(pid)
        return roots

    # Ending.

    def reach(self, pid: int, name: str) -> None:
        """The server, or the durable keeper, has found that a command has reached a limit."""
        tree = self._trees.get(pid)
        if tree is not None:
            self._end(tree, name)

    def _end(self, tree: LimitedTree, name: str) -> None:
        if tree.reached is None:
            tree.reached = name
            self._kill(tree)

    def _kill(self, tree: LimitedTree) -> None:
        if tree.group is not None:
            tree.group.kill()
        if tree.is_live:
            self._keeper.kill_program(tree.pid)
        if tree.namespace is None and tree.group is None:
            until = time.monotonic() + _KILL_SECONDS
            while tree_usage.kill_below(self._roots(tree)) and time.monotonic() < until:
                pass
        self._keeper.end_mark(tree.mark)

    def exited(
        self, pid: int, status: int, found: dict[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """The first process of a command was reaped with *status*: what is known of it.

        *found* are facts about its end from elsewhere.
        """
        tree = self._trees.pop(pid, None)
        if tree is None:
            return None
        tree.is_live = False
        facts: dict[str, Any] = {} if tree.group is None else tree.group.facts()
        if tree.reached is None and os.WIFSIGNALED(status):
            tree.reached = self._reason_of(tree, os.WTERMSIG(status))
            if tree.reached is None and os.WTERMSIG(status) == signal.SIGXFSZ:
                facts |= _of_large_file(tree, found or {})
                tree.reached = facts.pop("limit", None)
        elif tree.reached is None and _are_own_kills(facts):
            # One of its processes was killed, and the command has noticed.
            tree.reached = "memory"
        if tree.reached is not None:
            facts["limit"] = tree.reached
            self._kill(tree)
        if not self._is_over(tree):
            self._left.append(tree)
        return facts or None

    def _reason_of(self, tree: LimitedTree, signum: int) -> str | None:
        """The limit that has ended a command by *signum*, before it was seen."""
        if tree.has_memory_group and self._has_own_kills(tree):
            return "memory"
        by_cpu = signum in (signal.SIGXCPU, signal.SIGKILL) and tree.cpu_seconds is not None
        if by_cpu and tree.cpu_seconds is not None and self._cpu(tree) > tree.cpu_seconds:
            return "cpuSeconds"
        return None

    def _is_over(self, tree: LimitedTree) -> bool:
        """True if no process of *tree* is left; then its group is given back."""
        if tree.is_live:
            return False
        if tree.group is None:
            return not self._roots(tree)
        if tree.group.members():
            return False
        # The guard of a sandbox in bubblewrap may still be about to put something into its group.
        self._spares.give_back(tree.group, is_reusable=tree.namespace is None)
        return True

    def close(self) -> None:
        """All processes are gone: remove what was made for them."""
        for tree in (*self._trees.values(), *self._left):
            if tree.group is not None:
                tree.group.remove()
        self._spares.close()
        if self._areas is not None:
            self._areas.close()


def _of_large_file(tree: LimitedTree, found: dict[str, Any]) -> dict[str, Any]:
    """What SIGXFSZ says: a file became as large as the limit, or a program has sent the signal."""
    if tree.disk is None:
        return {}
    sender = (found.get("sender") or {}).get("kind")
    written = max(found.get("written", 0), tree.usage.written_bytes)
    if sender == "kernel" or (sender is None and written >= tree.disk * _NEARLY):
        return {"limit": "disk"}
    return {"limit_or_signal": "disk"} if sender is None else {}


def _are_own_kills(facts: dict[str, Any]) -> bool:
    """True if processes were killed because of the limit of their own group."""
    return "oom_kill" in facts and "oom_outer" not in facts


def _durable_keepers() -> Iterator[int]:
    """The keepers of durable jobs of this user, which belong to no server."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = os.fsencode(os.path.join(folder, "durable", "durable_keeper.py"))
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                is_keeper = program in file.read().split(b"\0")[:6]
            if is_keeper and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                yield int(name)
        except OSError:
            continue


def _most(tree: LimitedTree) -> float | None:
    """How many processes of *tree* have to be looked at, bubblewrap's two included."""
    return None if tree.pids is None else tree.pids + 2


def _places() -> list[cgroup_places.GroupPlace]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        mountinfo = file.read()
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        return cgroup_places.located(mountinfo, file.read())
