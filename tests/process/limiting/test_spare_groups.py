"""Groups that are used again, and those that are removed when there is time for it."""

from __future__ import annotations

import errno
import os
import time

import pytest

from exec_server.process.limiting.cgroups import Group
from exec_server.process.limiting.spare_groups import SpareGroups

MEMORY = (("cgroup1", "memory", 64.0),)


class FakeGroup(Group):
    """A group that is removed, or can be reset, if it is told so."""

    def __init__(self, bounds=MEMORY, *, can_reset=True, can_remove=True, can_open=True):
        super().__init__("1")
        self.bounds = bounds
        self.can_open = can_open
        self.is_opened = False
        self.can_reset = can_reset
        self.can_remove = can_remove
        self.removals = 0

    def reset(self):
        return self.can_reset

    def open_entrances(self):
        if not self.can_open:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.is_opened = True

    def remove(self):
        self.removals += 1
        return self.can_remove


class Made:
    def __init__(self):
        self.groups = []

    def __call__(self, bounds):
        self.groups.append(FakeGroup(bounds))
        return self.groups[-1]


@pytest.fixture
def made():
    return Made()


def later() -> float:
    """A time at which nothing waits any more."""
    return time.monotonic() + 1000


def test_a_group_is_made_for_the_next_start_when_there_is_time(made):
    spares = SpareGroups(made)
    assert spares.due is None
    assert spares.take(MEMORY) is None
    assert spares.due is not None
    spares.work(0.0)
    assert not made.groups
    spares.work(later())
    assert spares.due is None
    assert spares.take(MEMORY) is made.groups[0]
    assert made.groups[0].is_opened


def test_a_group_that_cannot_be_opened_is_no_spare():
    groups = []

    def make(bounds):
        groups.append(FakeGroup(bounds, can_open=False))
        return groups[-1]

    spares = SpareGroups(make)
    spares.take(MEMORY)
    while spares.due is not None:
        spares.work(later())
    assert spares.take(MEMORY) is None
    spares.give_back(used := FakeGroup(can_open=False), is_reusable=True)
    assert spares.take(MEMORY) is None
    while spares.due is not None:
        spares.work(later())
    assert [group.removals for group in (*groups, used)] == [1] * (len(groups) + 1)


@pytest.mark.parametrize("has_time", [True, False])
def test_a_group_of_which_nothing_is_left_is_used_again(made, has_time):
    spares = SpareGroups(made)
    spares.take(MEMORY)
    group = FakeGroup()
    spares.give_back(group, is_reusable=True)
    if has_time:
        spares.work(0.0)
        assert spares.due is None
    assert spares.take(MEMORY) is group
    assert group.is_opened
    assert not made.groups and not group.removals


@pytest.mark.parametrize("can_reset, is_reusable", [(False, True), (True, False)])
def test_other_groups_are_removed_later(made, can_reset, is_reusable):
    spares = SpareGroups(made)
    spares.take(MEMORY)
    group = FakeGroup(can_reset=can_reset)
    spares.give_back(group, is_reusable=is_reusable)
    assert group.removals == 0
    while spares.due is not None:
        spares.work(later())
    assert group.removals == 1
    assert spares.take(MEMORY) is made.groups[0]


def test_a_group_that_cannot_be_removed_yet_is_tried_again(made):
    spares = SpareGroups(made)
    group = FakeGroup(can_remove=False)
    spares.give_back(group, is_reusable=False)
    spares.work(later())
    group.can_remove = True
    spares.work(later())
    assert group.removals == 2
    assert spares.due is None


def test_no_more_than_a_few_groups_wait(made):
    spares = SpareGroups(made)
    kinds = [(("cgroup1", "memory", float(size)),) for size in range(10)]
    for kind in kinds:
        spares.take(kind)
        spares.work(later())
    while spares.due is not None:
        spares.work(later())
    left = [group for group in made.groups if not group.removals]
    assert [group.bounds for group in left] == kinds[-4:]
    spares.close()
    assert all(group.removals == 1 for group in made.groups)
    groups = [FakeGroup(can_reset=False) for _ in range(500)]
    for group in groups:
        spares.give_back(group, is_reusable=False)
    assert sum(not group.removals for group in groups) < 100


def test_a_group_that_cannot_be_made_is_left_to_the_next_start():
    spares = SpareGroups(lambda bounds: None)
    spares.take(MEMORY)
    spares.work(later())
    assert spares.due is None
    assert spares.take(MEMORY) is None
