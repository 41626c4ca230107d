"""Which mechanism holds which limit, by what the machine offers. Pure.

The keeper loads this file by its path; only the standard library is available there.
"""

from __future__ import annotations

# A stand-in for `typing.TYPE_CHECKING`, without the import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# So often a watched tree is looked at.
LOOK_SECONDS = 0.05
LOOKED_AT = f"checked every {LOOK_SECONDS * 1000:g} ms"
# The control group's controller of each limit that has one.
CONTROLLERS = {"memory": "memory", "pids": "pids", "cpuRate": "cpu"}
NAMES = ("memory", "pids", "cpuRate", "cpuSeconds", "wall", "outputBytes", "disk", "openFiles")
# The kernel takes no shorter time slices than 1 ms in each 100 ms.
LOWEST_RATE = 0.01
# More cores, or more processes, than any machine has; the kernel refuses much larger values.
HIGHEST_RATE = 100_000.0
HIGHEST_PIDS = 1 << 22

# What watching cannot see is said, too.
_WATCHED = {
    "memory": f"{LOOKED_AT}; files in memory are counted while they are open",
    "pids": LOOKED_AT,
    "cpuSeconds": LOOKED_AT,
    "wall": "within 50 ms",
    "disk": f"{LOOKED_AT}; counts all bytes written, also those that are deleted or overwritten",
    "outputBytes": "exact",
}
# Before that a program could go beyond its limit for a moment; see limited_start.py and `visit`.
_ONCE_ANSWERED = "exact once the start is answered"


class Facilities:
    """What the machine offers to this user.

    *cgroup2* and *cgroup1* are the controllers in which groups can be made; *can_watch* is true
    where /proc tells what processes use. *why* has the reason why a controller is missing.
    """

    def __init__(
        self,
        *,
        cgroup2: Collection[str] = (),
        cgroup1: Collection[str] = (),
        can_watch: bool = True,
        why: Mapping[str, str] | None = None,
    ) -> None:
        self.cgroup2 = frozenset(cgroup2)
        self.cgroup1 = frozenset(cgroup1)
        self.can_watch = can_watch
        self.why = dict(why or {})

    def without(self, mechanism: str, controller: str, why: str) -> Facilities:
        """The same, but for a controller that has failed."""
        return Facilities(
            cgroup2=self.cgroup2 - ({controller} if mechanism == "cgroup2" else set()),
            cgroup1=self.cgroup1 - ({controller} if mechanism == "cgroup1" else set()),
            can_watch=self.can_watch,
            why={**self.why, controller: why},
        )


class Choice:
    """How one limit is held: its value, mechanism, scope and grain; if it is not, *why*."""

    __slots__ = ("grain", "mechanism", "scope", "value", "why")

    def __init__(self, value: float, mechanism: str, scope: str, grain: str, why: str = "") -> None:
        self.value = value
        self.mechanism = mechanism
        self.scope = scope
        self.grain = grain
        # Why a start that requires its limits is refused; empty if this one is held.
        self.why = why

    @property
    def as_tuple(self) -> tuple[float, str, str, str]:
        """As the keeper's message says it."""
        return self.value, self.mechanism, self.scope, self.grain


def choose(
    limits: Mapping[str, float],
    facilities: Facilities,
    *,
    hard_files: int | None = None,
    output_grain: str = "exact",
) -> dict[str, Choice]:
    """The strongest mechanism for each of *limits*.

    *hard_files* is the bound of open files; *output_grain* says how exactly output is counted.
    """
    choices = {
        name: _choice(name, limits[name], facilities, hard_files)
        for name in NAMES
        if name in limits
    }
    if "outputBytes" in choices:
        choices["outputBytes"].grain = output_grain
    return choices


def _choice(name: str, value: float, facilities: Facilities, hard_files: int | None) -> Choice:
    if name == "openFiles":
        held = value if hard_files is None else min(value, hard_files)
        return Choice(held, "rlimit", "process", _ONCE_ANSWERED)
    controller = CONTROLLERS.get(name)
    for mechanism, offered in (("cgroup2", facilities.cgroup2), ("cgroup1", facilities.cgroup1)):
        if controller is not None and controller in offered:
            return _grouped(name, value, mechanism)
    if name in ("wall", "outputBytes") or (name in _WATCHED and facilities.can_watch):
        return _watched(name, value)
    reason = facilities.why.get(controller or name, "")
    text = f"no control group of the controller `{controller}` can be made here"
    if controller is None:
        text = "this machine does not tell what processes use"
    return Choice(value, "none", "tree", "not held", f"{text}{reason and f' ({reason})'}")


def _grouped(name: str, value: float, mechanism: str) -> Choice:
    if name == "cpuRate":
        rate = min(max(value, LOWEST_RATE), HIGHEST_RATE)
        why = f"the kernel holds no rate below {LOWEST_RATE} cores" if value < LOWEST_RATE else ""
        return Choice(rate, mechanism, "tree", "exact in each 100 ms", why)
    if name == "pids":
        value = min(value, HIGHEST_PIDS - 1)
    is_late = (name, mechanism) == ("memory", "cgroup1")
    return Choice(value, mechanism, "tree", _ONCE_ANSWERED if is_late else "exact")


def _watched(name: str, value: float) -> Choice:
    why = ""
    if name == "disk":
        why = "space that is reserved without writing to it can only be bounded for each file"
    return Choice(value, "watched", "tree", _WATCHED[name], why)


def refusal(choices: Mapping[str, Choice]) -> str | None:
    """Why a start that requires its limits cannot run; None if all of them are held."""
    unheld = [f"`{name}` cannot be held: {each.why}" for name, each in choices.items() if each.why]
    return "; ".join(unheld) or None
