"""What follows from floors without any I/O."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exec_server.access.floors import lowest, problems, sandbox_words
from exec_server.access.principal import Floors, SandboxFloor
from exec_server.protocol.resources import ResourceLimits
from tests.requirements import requirement

NAMES = [name for name in ResourceLimits.__struct_fields__ if name != "require"]
limits = st.none() | st.builds(
    lambda values, require: ResourceLimits(**values, require=require),
    st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9)),
    st.booleans(),
)


@requirement("floors/limits:lowest")
@given(limits, limits)
def test_the_lower_one_of_each_limit_holds(asked, floor):
    found = lowest(asked, floor)
    for name in NAMES:
        given_ = [getattr(each, name) for each in (asked, floor) if each is not None]
        known = [value for value in given_ if value is not None]
        assert (getattr(found, name) if found else None) == (min(known) if known else None)
    assert (found is not None and found.require) == any(
        e is not None and e.require for e in (asked, floor)
    )


def test_a_floor_says_what_it_cannot_hold():
    assert problems(Floors()) == []
    held = SandboxFloor(kind="workspace-write", folders=("/srv/app",))
    assert problems(Floors(roots=("/srv/app",), sandbox=held, hosts=())) == []
    assert len(problems(Floors(roots=("/srv/app",), hosts=("a.test",)))) == 2
    assert "srv" in problems(Floors(roots=("srv",), sandbox=held))[0]


def test_a_sandbox_floor_is_named_as_the_command_line_spells_it():
    floor = SandboxFloor(kind="workspace-write", folders=("/srv/app", "/var/cache"))
    assert sandbox_words(floor) == "workspace-write=/srv/app:/var/cache"
    assert sandbox_words(SandboxFloor(kind="read-only", network=True)) == "read-only with network"
