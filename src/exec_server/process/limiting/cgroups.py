"""Control groups of both versions: made, entered, read and removed.

The keeper loads this file by its path; only the standard library is available there.

The keeper makes a directory of its own in each hierarchy that it needs, below the group that it is
in, so that the limits around it hold as well; each limited start gets a group in there. The name of
the directory has the keeper's pid and the time of its start, so that a later keeper can remove what
a killed one has left. The keeper itself stays outside.

The file is long because what is loaded by its path has no package to import a second file from.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exec_server.process.limiting.cgroup_places import GroupPlace

# What statfs(2) says of a hierarchy; a tmpfs at the same path takes directories and limits nothing.
_MAGIC = {1: 0x27E0EB, 2: 0x63677270}
_PERIOD = 100_000
_PREFIX = "exec-server"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-(\d+)")
# The leaf in which the server and the keeper are if their own group has to have controllers.
_LEAF = f"{_PREFIX}-itself"
# So often the processes of a group are moved or killed, until none is left.
_ROUNDS = 20
# This directory exists where systemd runs.
_SYSTEMD = "/run/systemd/system"
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Errors that the next start would meet, too. Others are about a value that the kernel does not
# take, such as a rate above that of an outer group, or about descriptors or memory for the moment.
_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EOPNOTSUPP)
# Both limits of memory of version 1, the outer one first; and the value that stands for none.
_MEMORY1 = ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes")
_UNLIMITED = b"-1"
# A group that has kept more than this of an earlier command is not used again, because the next
# peak would be wrong. What the kernel frees only a moment later is less.
_MOST_LEFT = 1 << 20
_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000


class GroupFailed(Exception):
    """A controller does not do what it is asked for.

    *is_lasting* is false if only this group or this value is concerned.
    """

    def __init__(self, mechanism: str, controller: str, why: str, *, is_lasting: bool) -> None:
        super().__init__(why)
        self.mechanism = mechanism
        self.controller = controller
        self.is_lasting = is_lasting


class Group:
    """The group of one start: a directory in each hierarchy that its limits need."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The directories by mechanism and controller; one directory may be there several times.
        self._parts: dict[tuple[str, str], str] = {}
        # Descriptors to which a process is written that enters the group, with their mechanisms.
        self._entrances: dict[int, str] = {}
        # Where the keeper is itself, as such descriptors; they belong to `Areas`.
        self._homes: list[int] = []
        # The limits of memory of version 1: the values by file, and by descriptor during a start.
        self._limits1: dict[str, bytes] = {}
        self._memory1: dict[int, bytes] = {}
        # What it bounds: a mechanism, a controller and a value each.
        self.bounds: tuple[tuple[str, str, float], ...] = ()
        # True if the command had more memory than its limit before that was set.
        self.is_overfull = False
        self._is_killed = False
        # True if its last reading has shown that processes were killed because of memory.
        self._has_kills = False
        # True in a process that was made inside of the part of version 2.
        self._is_inside = False

    def add(self, mechanism: str, controller: str, area: str, home: int | None = None) -> str:
        """Make the directory below *area*; to leave it, write to *home*. Raises OSError."""
        path = f"{area}/{self._name}"
        if path not in self._parts.values():
            os.mkdir(path)
            self._parts[mechanism, controller] = path
            if home is not None:
                self._homes.append(home)
        self._parts[mechanism, controller] = path
        return path

    @property
    def is_made(self) -> bool:
        return bool(self._parts)

    @property
    def _folders(self) -> set[str]:
        return set(self._parts.values())

    def open_entrances(self) -> None:
        """Get ready for a start, unless it is. Raises OSError."""
        if self._entrances:
            return
        try:
            for path, mechanism in {path: key[0] for key, path in self._parts.items()}.items():
                # A process that has one thread enters by `tasks` without a lock for which the
                # kernel may wait 20 ms.
                file = "tasks" if mechanism == "cgroup1" else "cgroup.procs"
                self._entrances[_opened(f"{path}/{file}")] = mechanism
            for file, value in self._limits1.items():
                self._memory1[_opened(file)] = value
        except OSError:
            self.close_entrances()
            raise

    @property
    def admits_visits(self) -> bool:
        """True if this process can be in the group for a moment."""
        return all(mechanism == "cgroup1" for mechanism, _ in self._parts)

    def visit(self, spawn: Callable[[], int]) -> int:
        """Call *spawn* in the group, where its program stays, while this process leaves it.

        Meanwhile the limit of memory is not set: the kernel might kill this process, if the new one
        has too much at once. Raises OSError.
        """
        try:
            for fd in self._memory1:
                os.write(fd, _UNLIMITED)
            pid = self._spawned(spawn)
        finally:
            for fd, value in reversed(self._memory1.items()):
                try:
                    os.write(fd, value)
                except OSError:
                    # The kernel could not free enough.
                    self.is_overfull = True
        return pid

    def _spawned(self, spawn: Callable[[], int]) -> int:
        try:
            self.enter()
            pid = spawn()
        except BaseException:
            self._leave()
            raise
        try:
            self._leave()
        except OSError:
            os.kill(pid, signal.SIGKILL)
            raise
        return pid

    def _leave(self) -> None:
        for fd in self._homes:
            os.write(fd, b"0")

    def fork(self) -> int:
        """As os.fork; the new process is in the part of version 2 already, if there is one.

        To enter it later takes a lock for which the kernel may wait 20 ms.
        """
        for (mechanism, _), path in self._parts.items():
            if mechanism == "cgroup2":
                pid = _fork_into(path)
                if pid is None:
                    break
                if pid == 0:
                    self._is_inside = True
                return pid
        return os.fork()

    def enter(self, pid: int = 0) -> None:
        """Put *pid* into the group, or the process that calls this. Raises OSError."""
        for fd, mechanism in self._entrances.items():
            if not (self._is_inside and mechanism == "cgroup2"):
                os.write(fd, b"%d" % pid)

    def close_entrances(self) -> None:
        for opened in (self._entrances, self._memory1):
            while opened:
                os.close(opened.popitem()[0])

    def remove(self) -> bool:
        """Remove the group; False while there is a process in it."""
        self.close_entrances()
        for key, path in tuple(self._parts.items()):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            del self._parts[key]
        return True

    def reset(self) -> bool:
        """Make it like a new one with the same bounds; False if that cannot be done exactly.

        Its last facts were read after its last process had ended.
        """
        spoilt = self._is_killed or self._has_kills or self.is_overfull
        if spoilt or not self.admits_visits:
            return False
        if any(_pids(f"{path}/cgroup.procs") for path in self._folders):
            return False
        try:
            return all(_is_reset(controller, path) for (_, controller), path in self._parts.items())
        except OSError:
            return False

    def members(self) -> set[int]:
        """The processes in the group."""
        for path in self._folders:
            return _pids(f"{path}/cgroup.procs")
        return set()

    def kill(self) -> None:
        """Kill all processes of the group."""
        self._is_killed = True
        for (mechanism, controller), path in self._parts.items():
            if mechanism == "cgroup2" and _try_write(f"{path}/cgroup.kill", "1"):
                return
            if controller == "pids":
                # It makes no new ones meanwhile.
                _try_write(f"{path}/pids.max", "0")
        for _ in range(_ROUNDS):
            members = self.members()
            for pid in members:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            if not members:
                return

    # What it tells.

    def cpu_seconds(self) -> float | None:
        for (mechanism, controller), path in self._parts.items():
            if mechanism == "cgroup2":
                usage = _table(f"{path}/cpu.stat").get("usage_usec")
                return None if usage is None else usage / 1e6
            if controller == "cpuacct":
                nanoseconds = _number(f"{path}/cpuacct.usage")
                return None if nanoseconds is None else nanoseconds / 1e9
        return None

    def memory_kills(self) -> dict[str, int]:
        """How often its memory limit was reached, and how many processes were killed for that.

        `oom_outer` are those that were killed because of the memory of a group around it.
        """
        if path := self._parts.get(("cgroup2", "memory")):
            events = _table(f"{path}/memory.events")
            kills, reached = events.get("oom_kill", 0), events.get("max", 0)
            asked = events.get("oom", 0)
        elif path := self._parts.get(("cgroup1", "memory")):
            kills = _table(f"{path}/memory.oom_control").get("oom_kill", 0)
            reached = (_number(f"{path}/memory.failcnt") or 0) if kills else 0
            asked = kills if reached else 0
        else:
            return {}
        self._has_kills = bool(kills)
        if not kills:
            return {}
        # Reclaiming memory counts as `reached`, too, so that only `oom` proves it.
        is_own = bool(asked)
        facts = {"oom": asked, "oom_kill": kills, "oom_max": reached}
        return facts if is_own else {**facts, "oom_outer": kills}

    def facts(self) -> dict[str, object]:
        """What is known of a command whose first process has ended."""
        mechanisms = [mechanism for mechanism, _ in self._parts]
        facts: dict[str, object] = {"group": min(mechanisms, default=None)}
        if (cpu := self.cpu_seconds()) is not None:
            facts["cpu"] = cpu
        peaks = (
            ("peak_memory", ("cgroup2", "memory"), "memory.peak"),
            ("peak_memory", ("cgroup1", "memory"), "memory.max_usage_in_bytes"),
            ("processes", ("cgroup2", "pids"), "pids.peak"),
            ("processes", ("cgroup1", "pids"), "pids.peak"),
        )
        for fact, key, file in peaks:
            if key in self._parts and (peak := _number(f"{self._parts[key]}/{file}")) is not None:
                facts[fact] = peak
        return {name: fact for name, fact in (facts | self.memory_kills()).items() if fact}

    # What it bounds. Each raises OSError or ValueError if the bound does not hold.

    def bound(self, mechanism: str, controller: str, value: float) -> None:
        path = self._parts[mechanism, controller]
        if (mechanism, controller) == ("cgroup1", "memory"):
            limits = _bound_memory1(path, value)
            self._limits1 = {f"{path}/{name}": limits[name] for name in _MEMORY1 if name in limits}
            return
        bounds: dict[tuple[str, str], Callable[[str, float], None]] = {
            ("cgroup2", "memory"): _bound_memory2,
            ("cgroup2", "cpu"): _bound_cpu2,
            ("cgroup1", "cpu"): _bound_cpu1,
        }
        bounds.get((mechanism, controller), _bound_pids)(path, value)


def _bound_memory2(path: str, value: float) -> None:
    _write(f"{path}/memory.max", str(int(value)))
    _is_at_most(f"{path}/memory.max", value)
    # With swap the command would have more memory than that.
    if os.path.exists(f"{path}/memory.swap.max"):
        _write(f"{path}/memory.swap.max", "0")
    _try_write(f"{path}/memory.oom.group", "1")


def _bound_memory1(path: str, value: float) -> dict[str, bytes]:
    """What was written to which file."""
    if _number(f"{path}/memory.use_hierarchy") == 0:
        _write(f"{path}/memory.use_hierarchy", "1")
    with_swap, without_swap = _MEMORY1
    limits = {without_swap: b"%d" % int(value)}
    if os.path.exists(f"{path}/{with_swap}"):
        # A page more, so that the kernel counts how often the other limit is reached.
        limits[with_swap] = b"%d" % (int(value) + _PAGE)
    else:
        limits["memory.swappiness"] = b"0"
    for name, limit in limits.items():
        _write(f"{path}/{name}", limit.decode())
    _is_at_most(f"{path}/{without_swap}", value)
    return limits


def _is_reset(controller: str, path: str) -> bool:
    """Reset what a group of version 1 counts; False if it cannot be."""
    if controller == "memory":
        left = _number(f"{path}/memory.usage_in_bytes")
        if left is None or left > _MOST_LEFT:
            return False
        _write(f"{path}/memory.max_usage_in_bytes", "0")
        _write(f"{path}/memory.failcnt", "0")
    elif controller == "cpuacct":
        _write(f"{path}/cpuacct.usage", "0")
    elif controller == "pids":
        return not os.path.exists(f"{path}/pids.peak")
    return True


def _bound_cpu2(path: str, value: float) -> None:
    quota = f"{round(value * _PERIOD)} {_PERIOD}"
    _write(f"{path}/cpu.max", quota)
    if _read(f"{path}/cpu.max").split() != quota.split():
        raise ValueError("cpu.max does not keep what is written to it")


def _bound_cpu1(path: str, value: float) -> None:
    _write(f"{path}/cpu.cfs_period_us", str(_PERIOD))
    _write(f"{path}/cpu.cfs_quota_us", str(round(value * _PERIOD)))
    _is_at_most(f"{path}/cpu.cfs_quota_us", round(value * _PERIOD))


def _bound_pids(path: str, value: float) -> None:
    _write(f"{path}/pids.max", str(int(value)))
    _is_at_most(f"{path}/pids.max", value)


def _is_at_most(file: str, value: float) -> None:
    found = _number(file)
    # The kernel counts in pages.
    if found is None or not 0 <= found <= max(value, _PAGE):
        raise ValueError(f"{os.path.basename(file)} does not keep what is written to it")


class Areas:
    """The directories of this keeper in the hierarchies of *places*.

    *ours* are processes that may be moved out of the keeper's group, if there has to be no process
    in it; no other process is ever moved.
    """

    def __init__(self, places: Iterable[GroupPlace], ours: Callable[[], set[int]]) -> None:
        self._ours = ours
        self._made: list[str] = []
        self._count = 0
        # The directories by mechanism and controller.
        self._areas: dict[tuple[str, str], str] = {}
        # A directory of version 2; without a controller it still counts the CPU time.
        self._plain: str | None = None
        # The groups of version 1 that this process is in, by the directory, as open files.
        self._homes: dict[str, int] = {}
        # Why a controller cannot be used.
        self.why: dict[str, str] = {}
        self._name = _own_name()
        for place in places:
            try:
                self._open(place)
            except OSError as exc:
                for controller in place.controllers or ("memory", "pids", "cpu"):
                    self.why.setdefault(controller, f"{place.path}: {exc.strerror or exc}")

    def controllers(self, mechanism: str) -> set[str]:
        return {controller for each, controller in self._areas if each == mechanism}

    def _open(self, place: GroupPlace) -> None:
        if filesystem(place.path) != _MAGIC[place.version]:
            raise OSError(0, "not a control group")
        own = _base(place.path) if place.version == 2 else place.path
        sweep(own)
        area = f"{own}/{self._name}"
        try:
            os.mkdir(area)
        except FileExistsError:
            # Two controllers in one hierarchy.
            pass
        self._made.append(area)
        if place.version == 1:
            if area not in self._homes:
                self._homes[area] = _opened(f"{own}/tasks")
            for controller in place.controllers:
                self._areas["cgroup1", controller] = area
            return
        self._plain = area
        for controller in self._enable(own, area):
            self._areas["cgroup2", controller] = area

    def _enable(self, own: str, area: str) -> set[str]:
        """Have *area* hand its controllers on to the groups in it; the ones for which it worked."""
        wanted = {"memory", "pids", "cpu"} & set(_read(f"{own}/cgroup.controllers").split())
        missing = wanted - set(_read(f"{own}/cgroup.subtree_control").split())
        try:
            # Only the root of a hierarchy may have both processes and controllers.
            if missing and os.path.exists(f"{own}/cgroup.type"):
                if not _may_change(own):
                    raise OSError(
                        0, "systemd has not delegated this group: Delegate=yes is missing"
                    )
                self._empty(own)
            _enable(own, missing)
            _enable(area, wanted)
        except OSError as exc:
            for controller in wanted:
                self.why[controller] = f"{own}: {exc.strerror or exc}"
        return wanted & set(_read(f"{area}/cgroup.subtree_control").split())

    def _empty(self, own: str) -> None:
        """Move our own processes from the group *own* into a leaf. Raises OSError."""
        for _ in range(_ROUNDS):
            members = _pids(f"{own}/cgroup.procs")
            if not members:
                return
            if members - self._ours():
                raise OSError(0, "there are processes of others in this group")
            os.makedirs(f"{own}/{_LEAF}", exist_ok=True)
            for pid in members:
                _try_write(f"{own}/{_LEAF}/cgroup.procs", str(pid))
        raise OSError(0, "the processes in this group cannot be moved")

    def new_group(self) -> Group:
        self._count += 1
        return Group(str(self._count))

    def add(self, group: Group, mechanism: str, controller: str, value: float) -> None:
        """Bound *group*. Raises GroupFailed if that does not work."""
        try:
            area = self._areas[mechanism, controller]
            group.add(mechanism, controller, area, self._homes.get(area))
            group.bound(mechanism, controller, value)
        except (OSError, ValueError) as exc:
            is_lasting = not isinstance(exc, OSError) or exc.errno in _LASTING
            why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
            raise GroupFailed(mechanism, controller, why, is_lasting=is_lasting) from exc

    def count_cpu(self, group: Group) -> None:
        """Have *group* count CPU time, if there is a hierarchy that does."""
        if group.cpu_seconds() is not None:
            return
        area = self._areas.get(("cgroup1", "cpuacct"))
        try:
            if area is not None:
                group.add("cgroup1", "cpuacct", area, self._homes.get(area))
            elif self._plain is not None:
                group.add("cgroup2", "", self._plain)
        except OSError:
            # The tree is watched instead.
            return

    def close(self) -> None:
        for area in self._made:
            remove_area(area)
        while self._homes:
            os.close(self._homes.popitem()[1])


def _fork_into(folder: str) -> int | None:
    """Fork into a group of version 2; None if this kernel cannot do that."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # `struct clone_args`: the flags are the first, the signal the fifth, the group the last.
        words = (ctypes.c_uint64 * 11)()
        words[0], words[4], words[10] = _CLONE_INTO_CGROUP, signal.SIGCHLD, fd
        # Without giving up Python's lock, as os.fork does.
        libc = ctypes.PyDLL(None)
        libc.syscall.restype = ctypes.c_long
        pid: int = libc.syscall(_CLONE3, ctypes.byref(words), ctypes.sizeof(words))
        return None if pid < 0 else pid
    finally:
        os.close(fd)


def _base(own: str) -> str:
    """The group below which groups are made: *own*, or the one above if that was delegated to us.

    So it is in a systemd unit with `DelegateSubgroup=`, where the server starts in a leaf.
    """
    above = os.path.dirname(own)
    try:
        is_empty = not _read(f"{above}/cgroup.procs").split()
        if {"memory", "pids"} <= set(_read(f"{own}/cgroup.controllers").split()) or not is_empty:
            return own
        is_ours = os.geteuid() and os.access(f"{above}/cgroup.subtree_control", os.W_OK)
        return above if is_ours or _is_delegated(above) else own
    except OSError:
        return own


def _may_change(own: str) -> bool:
    """False for a group of version 2 that systemd manages itself: it would undo what we do."""
    return bool(os.geteuid()) or not os.path.isdir(_SYSTEMD) or _is_delegated(own)


def _is_delegated(group: str) -> bool:
    """True if systemd says that *group* is left to the processes in it."""
    for name in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(group, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _enable(folder: str, controllers: Iterable[str]) -> None:
    if words := " ".join(f"+{controller}" for controller in controllers):
        _write(f"{folder}/cgroup.subtree_control", words)


def _own_name() -> str:
    pid = os.getpid()
    return f"{_PREFIX}-{os.stat('/proc/self/ns/pid').st_ino}-{pid}-{start_time(pid)}"


def sweep(folder: str) -> None:
    """Remove what keepers that were killed have left in *folder*."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    for name in os.listdir(folder):
        match = _NAME.fullmatch(name)
        if match and int(match[1]) == namespace and start_time(int(match[2])) != int(match[3]):
            remove_area(f"{folder}/{name}")


def remove_area(area: str) -> None:
    """Remove the directory of a keeper, and the empty groups in it."""
    try:
        groups = [entry.path for entry in os.scandir(area) if entry.is_dir()]
    except OSError:
        return
    for path in (*groups, area):
        try:
            os.rmdir(path)
        except OSError:
            # There is a process in it.
            continue


def start_time(pid: int) -> int | None:
    """When a process was started, in the kernel's units; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def filesystem(path: str) -> int:
    """The kind of the file system at *path*, as statfs(2) numbers it. Raises OSError."""
    # The structure begins with a word for this, and is not longer than that.
    buffer = (ctypes.c_long * 64)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return buffer[0]


def _pids(file: str) -> set[int]:
    try:
        return {int(word) for word in _read(file).split()}
    except (OSError, ValueError):
        return set()


def _table(file: str) -> dict[str, int]:
    """A file of lines with a name and a number each."""
    try:
        pairs = (line.split() for line in _read(file).splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
    except OSError:
        return {}


def _number(file: str) -> int | None:
    try:
        return int(_read(file))
    except (OSError, ValueError):
        return None


def _read(file: str) -> str:
    # A file object would take several times as long.
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts).decode("ascii", "replace")


def _opened(file: str) -> int:
    """*file*, open for writing."""
    return os.open(file, os.O_WRONLY | os.O_CLOEXEC)


def _write(file: str, text: str) -> None:
    fd = _opened(file)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _try_write(file: str, text: str) -> bool:
    try:
        _write(file, text)
    except OSError:
        return False
    return True
