"""A Policy and the file system as it is now → a Plan: what is mounted, and in which order.

First each rule is followed to where it leads (see `resolved_rules`), so that every path in a plan
is free of symbolic links. Then each place gets one step, the shallow ones first, so that the
deepest rule decides. Some things differ from the simple model of `policy.access`: a place that may
be read below a denied one stays closed, a few names in writable directories are read-only (see
`protected_names`), and the server's own files are read-only or hidden (see `own_places`). At last
the directories above a step get their anchors: a command must not move a protected path away by
renaming a directory above it.
"""

from __future__ import annotations

from exec_server.errors import FloorRefused
from exec_server.sandbox import own_places
from exec_server.sandbox.containment import plan_excess
from exec_server.sandbox.file_system_facts import OS, FileSystemFacts, parent
from exec_server.sandbox.model import (
    Access,
    Hide,
    Plan,
    Policy,
    Show,
    Step,
    Unenforceable,
    depth,
)
from exec_server.sandbox.placeholders import default_folder
from exec_server.sandbox.policy import is_within
from exec_server.sandbox.resolved_rules import FRESH, PROC, ResolvedRules, nearest

# Each anchor is a mount, and bubblewrap reads the list of all mounts after each one.
_MAX_ANCHORS = 1000


def plan(
    policy: Policy,
    *,
    facts: FileSystemFacts = OS,
    extra_reads: tuple[bytes, ...] = (),
    read_only: tuple[bytes, ...] = (),
) -> Plan:
    """Plan how *policy* is enforced here and now.

    *extra_reads* may be read as well, unless the policy says something about them; *read_only* may
    not be written to, whatever it says. Raises Unenforceable when mounts cannot express a part of
    the policy, and FloorRefused when its paths lead beyond its floor. This asks the file system a
    few questions about each rule's path, and walks a tree for each glob.
    """
    made = _planned(policy, facts, extra_reads, read_only)
    if policy.floor is not None:
        floor = _planned(policy.floor.policy, facts, extra_reads, read_only)
        beyond = plan_excess(made, floor)
        if beyond is not None:
            raise FloorRefused(f"{policy.floor.words}; the request asks for more: {beyond}")
    return made


def _planned(
    policy: Policy,
    facts: FileSystemFacts,
    extra_reads: tuple[bytes, ...],
    read_only: tuple[bytes, ...],
) -> Plan:
    if not policy.is_managed:
        return Plan(policy, shows_host=True)
    places = ResolvedRules(facts)
    places.place(policy.rules)
    for glob in policy.globs:
        places.deny_matches(glob, policy.glob_depth)
    if policy.protects_metadata:
        places.protect_metadata()
    places.allow_reads(extra_reads)
    places.make_trusted(own_places.trusted())
    own = places.keep_own((*own_places.protected(), *read_only), own_places.hidden())
    own = places.follow_aliases(own)
    return _mounted(policy, places, facts, own)


def _mounted(
    policy: Policy, places: ResolvedRules, facts: FileSystemFacts, own: tuple[bytes, ...]
) -> Plan:
    effective = _effective(places.access)
    for path, access in effective.items():
        if access is Access.DENY and is_within(path, PROC):
            # /proc is mounted last, and would cover whatever hides a part of it.
            shown = path.decode("utf-8", "replace")
            raise Unenforceable(f"cannot enforce sandbox deny-read path {shown} below /proc")
    missing = [
        hidden
        for path, hidden in sorted(places.missing.items())
        if _access_above(path, effective) is Access.WRITE
    ]
    steps: list[Step] = [
        _step(path, access, effective, places, facts)
        for path, access in effective.items()
        if access is not Access.READ or path not in (b"/", *FRESH)
    ]
    steps += missing
    steps.sort(key=lambda step: depth(step.path))
    return Plan(
        policy,
        shows_host=b"/" in effective,
        steps=tuple(steps),
        placeholders=tuple((hidden.path, hidden.is_directory) for hidden in missing),
        # These are the links that an empty base lacks, because no step shows the places where they
        # are.
        links=tuple(
            (link, target)
            for link, target in sorted(places.links.items())
            if nearest(link, effective) is None
        ),
        anchors=_anchors(steps, effective),
        own_secrets=own,
    )


def _anchors(steps: list[Step], effective: dict[bytes, Access]) -> tuple[bytes, ...]:
    """Every directory above a step that the command could rename, because it is writable."""
    mounted = {step.path for step in steps}
    found: set[bytes] = set()
    # Something is mounted over our own folder in every sandbox.
    for path in (*mounted, default_folder()):
        above = parent(path)
        while above != b"/" and above not in found:
            if above not in mounted and _is_writable(above, effective):
                found.add(above)
            above = parent(above)
    if len(found) > _MAX_ANCHORS:
        raise Unenforceable(
            f"the protected paths are in more than {_MAX_ANCHORS} directories that could be renamed"
        )
    return tuple(sorted(found, key=depth))


def _is_writable(path: bytes, effective: dict[bytes, Access]) -> bool:
    found = nearest(path, effective)
    return found is not None and found[1] is Access.WRITE


def _effective(access: dict[bytes, Access]) -> dict[bytes, Access]:
    """The places that change the access given above them, shallow ones first."""
    effective: dict[bytes, Access] = {}
    for path in sorted(access, key=depth):
        given, above = access[path], _access_above(path, effective)
        is_closed = given is Access.READ and above is Access.DENY
        # A writable directory in another one is a mount of its own, as in the reference.
        if given is Access.WRITE or (given is not above and not is_closed):
            effective[path] = given
    return effective


def _access_above(path: bytes, effective: dict[bytes, Access]) -> Access | None:
    found = None if path == b"/" else nearest(parent(path), effective)
    return None if found is None else found[1]


def _step(
    path: bytes,
    access: Access,
    effective: dict[bytes, Access],
    places: ResolvedRules,
    facts: FileSystemFacts,
) -> Step:
    is_directory = places.located[path].is_directory
    if access is Access.WRITE:
        return Show(path, is_writable=True)
    if access is Access.READ:
        # It is treated as missing: it may be the placeholder that another sandbox made just now.
        if is_directory and places.is_protected(path) and _is_empty(path, facts):
            return Hide(path, is_directory=True, mode=0o555)
        return Show(path, is_writable=False)
    if not is_directory:
        return Hide(path, is_directory=False, mode=0)
    reopened = [
        below
        for below in effective
        if below != path
        and is_within(below, path)
        and nearest(parent(below), effective) == (path, Access.DENY)
    ]
    return Hide(
        path,
        is_directory=True,
        mode=0o111 if reopened else 0,
        reopened=tuple(below for below in reopened if places.located[below].is_directory),
        reopened_files=tuple(below for below in reopened if not places.located[below].is_directory),
    )


def _is_empty(path: bytes, facts: FileSystemFacts) -> bool:
    try:
        return next(iter(facts.entries(path)), None) is None
    except FileNotFoundError:
        # It was the placeholder of another sandbox, which has ended since.
        return True
    except OSError:
        return False
