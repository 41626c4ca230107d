"""Which mechanism holds which limit."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.limiting import limiter as limiter_module
from exec_server.process.limiting.cgroup_places import located
from exec_server.process.limiting.limiter import Limiter
from exec_server.process.limiting.mechanisms import NAMES, Facilities, choose, refusal
from exec_server.protocol.limit_words import LIMIT_NAMES
from tests.requirements import requirement

controllers = st.frozensets(st.sampled_from(("memory", "pids", "cpu", "cpuacct")))
machines = st.builds(Facilities, cgroup2=controllers, cgroup1=controllers, can_watch=st.booleans())
asked = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 1 << 40))


def test_the_keeper_knows_all_names():
    assert NAMES == LIMIT_NAMES


@requirement("limits:choice")
@pytest.mark.parametrize(
    ("machine", "mechanisms"),
    [
        (Facilities(cgroup2=("memory", "pids", "cpu")), ("cgroup2", "cgroup2", "cgroup2")),
        (Facilities(cgroup1=("memory", "pids", "cpu")), ("cgroup1", "cgroup1", "cgroup1")),
        (Facilities(cgroup2=("pids",), cgroup1=("memory",)), ("cgroup1", "cgroup2", "none")),
        (Facilities(), ("watched", "watched", "none")),
        (Facilities(can_watch=False), ("none", "none", "none")),
    ],
)
def test_each_kind_of_machine(machine, mechanisms):
    choices = choose({"memory": 1, "pids": 1, "cpuRate": 1}, machine)
    assert tuple(choice.mechanism for choice in choices.values()) == mechanisms


@requirement("limits:choice", "limits:require")
@given(asked, machines)
def test_a_limit_is_held_or_there_is_a_reason(limits, machine):
    choices = choose(limits, machine, hard_files=1 << 20)
    assert choices.keys() == limits.keys()
    for name, choice in choices.items():
        assert choice.grain
        assert choice.mechanism != "none" or choice.why
        if choice.mechanism in ("cgroup1", "cgroup2"):
            assert not choice.why
        if name == "openFiles":
            assert choice.value <= 1 << 20
    reasons = refusal(choices)
    assert (reasons is None) == all(not choice.why for choice in choices.values())
    for name, choice in choices.items():
        assert not choice.why or f"`{name}` cannot be held" in (reasons or "")


@requirement("limits:choice", "limits:require")
@pytest.mark.parametrize("machine", [Facilities(cgroup2=("cpu",)), Facilities(cgroup1=("cpu",))])
def test_a_rate_below_what_the_kernel_holds_is_said_and_refused_if_required(machine):
    choices = choose({"cpuRate": 0.001}, machine)
    assert choices["cpuRate"].value == 0.01
    wanted = "`cpuRate` cannot be held: the kernel holds no rate below 0.01 cores"
    assert refusal(choices) == wanted
    assert refusal(choose({"cpuRate": 0.01}, machine)) is None


@given(asked, machines)
def test_more_controllers_never_hold_less(limits, machine):
    more = Facilities(cgroup2=("memory", "pids", "cpu"), cgroup1=machine.cgroup1)
    lost = [name for name, choice in choose(limits, more).items() if choice.mechanism == "none"]
    assert not lost


def test_a_controller_that_fails_is_not_tried_again():
    machine = Facilities(cgroup2=("cpu",), cgroup1=("cpu",)).without("cgroup2", "cpu", "broken")
    assert choose({"cpuRate": 1}, machine)["cpuRate"].mechanism == "cgroup1"
    machine = machine.without("cgroup1", "cpu", "worn out")
    choice = choose({"cpuRate": 1}, machine)["cpuRate"]
    assert choice.mechanism == "none" and "worn out" in choice.why


@requirement("limits:choice")
@pytest.mark.parametrize("is_lasting", [True, False])
def test_a_value_that_the_kernel_refuses_concerns_one_start(is_lasting, monkeypatch):
    starters = {"entries": dict, "fork_exec": int, "posix_spawn": int}
    limiter = Limiter(SimpleNamespace(output_grain="exact"), **starters, mark_of=int)
    limiter._facilities = Facilities(cgroup1=("cpu",))
    # The class that the limiter has loaded by its path.
    failed = vars(limiter_module)["cgroups"].GroupFailed(
        "cgroup1", "cpu", "no", is_lasting=is_lasting
    )
    monkeypatch.setattr(limiter, "_grouped", Mock(side_effect=[failed, None, None]))
    limits = {"cpuRate": 1.0}
    assert limiter.prepare(limits, is_wrapped=False).choices["cpuRate"].mechanism == "none"
    again = limiter.prepare(limits, is_wrapped=False).choices["cpuRate"].mechanism
    assert again == ("none" if is_lasting else "cgroup1")


HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


@requirement("limits:choice")
def test_the_own_groups_of_a_hybrid_machine():
    own = "4:memory:/a/b\n1:cpu,cpuacct:/\n8:pids:/\n0::/c\n"
    assert [(each.version, each.path) for each in located(HYBRID, own)] == [
        (1, "/sys/fs/cgroup/cpu,cpuacct"),
        (1, "/sys/fs/cgroup/memory/a/b"),
        (2, "/sys/fs/cgroup/unified/c"),
    ]


@requirement("limits:choice")
@pytest.mark.parametrize(
    ("root", "group", "path"),
    [
        ("/", "/user.slice/x", "/sys/fs/cgroup/user.slice/x"),
        ("/docker/1", "/docker/1/leaf", "/sys/fs/cgroup/leaf"),
        ("/docker/1", "/docker/1", "/sys/fs/cgroup"),
        # It cannot be reached from here.
        ("/docker/1", "/docker/12", None),
        ("/", "/../other", None),
    ],
)
def test_a_part_of_a_hierarchy_is_mounted(root, group, path):
    mounts = f"30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
    found = [each.path for each in located(mounts, f"0::{group}\n")]
    assert found == ([] if path is None else [path])


@given(st.text(), st.text())
def test_any_text_has_places_or_none(mounts, own):
    assert isinstance(located(mounts, own), list)
