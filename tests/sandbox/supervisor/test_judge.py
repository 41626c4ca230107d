"""Whether the policy refuses a path, and the bounded list of refusals."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.sandbox.supervisor import judge
from exec_server.sandbox.supervisor.judge import Ledger, Places
from tests.requirements import requirement

PLACES = Places(
    [
        (b"/", judge.READ, judge.OUTSIDE_WRITABLE),
        (b"/ws", judge.WRITE, ""),
        (b"/ws/.git", judge.READ, judge.PROTECTED_NAME),
        (b"/ws/fixed", judge.READ, judge.READ_ONLY_PATH),
        (b"/ws/closed", judge.CLOSED, judge.DENIED_PATH),
        (b"/ws/closed/open", judge.WRITE, ""),
        (b"/key", judge.CLOSED, judge.OWN_PLACE),
    ],
    free=(b"/dev/null",),
    fresh=(b"/proc",),
    protected=(b".git",),
    own=(b"/key", b"/opt/server"),
)


@pytest.mark.parametrize(
    ("path", "write", "read"),
    [
        (b"/etc/passwd", judge.OUTSIDE_WRITABLE, None),
        (b"/wsx", judge.OUTSIDE_WRITABLE, None),
        (b"/ws", None, None),
        (b"/ws/a/b", None, None),
        (b"/ws/.git/config", judge.PROTECTED_NAME, None),
        (b"/ws/a/.git", None, None),
        (b"/ws/fixed/a", judge.READ_ONLY_PATH, None),
        (b"/ws/closed/a", judge.DENIED_PATH, judge.DENIED_PATH),
        (b"/ws/closed/open/a", None, None),
        (b"/key", judge.OWN_PLACE, judge.OWN_PLACE),
        (b"/dev/null", None, None),
        (b"/dev/sda", judge.OUTSIDE_WRITABLE, None),
        (b"/proc/self/mem", None, None),
    ],
)
@requirement("denials/records:rules")
def test_the_deepest_place_decides(path, write, read):
    assert PLACES.refusal(path, writes=True) == write
    assert PLACES.refusal(path, writes=False) == read


@requirement("denials/records:rules")
def test_a_mount_point_keeps_its_name():
    assert PLACES.refusal(b"/ws", writes=True, renames=True) == judge.READ_ONLY_PATH
    assert PLACES.refusal(b"/ws/a", writes=True, renames=True) is None


@requirement("denials/records:rules")
def test_without_a_base_everything_is_closed():
    empty = Places([(b"/usr", judge.READ, judge.OUTSIDE_WRITABLE)])
    assert empty.refusal(b"/etc", writes=False) == judge.OUTSIDE_READABLE
    assert empty.refusal(b"/usr/bin", writes=False) is None


@pytest.mark.parametrize(
    ("path", "rule", "can"),
    [
        (b"/srv/x", judge.OUTSIDE_WRITABLE, True),
        (b"/ws/fixed/a", judge.READ_ONLY_PATH, True),
        (b"/srv/x", judge.PROTECTED_NAME, False),
        (b"/srv/x", judge.OWN_PLACE, False),
        (b"/srv/x", judge.SYSTEM_CALL, False),
        # These look harmless, but would open what is protected.
        (b"/srv/.git/config", judge.OUTSIDE_WRITABLE, False),
        (b"/opt/server/code.py", judge.OUTSIDE_WRITABLE, False),
        (b"/opt", judge.OUTSIDE_WRITABLE, False),
        (b"/", judge.OUTSIDE_WRITABLE, False),
        (b"/sys/fs/cgroup/x", judge.OUTSIDE_WRITABLE, False),
        (b"/proc/1/mem", judge.OUTSIDE_WRITABLE, False),
        (b"/dev/sda", judge.OUTSIDE_WRITABLE, False),
    ],
)
@requirement("denials/records:rules")
def test_what_can_be_granted(path, rule, can):
    assert PLACES.can_be_granted(path, rule) is can


@requirement("denials/grants:process")
def test_a_grant_holds_for_everything_below_and_for_its_access():
    places = Places([(b"/", judge.READ, judge.OUTSIDE_WRITABLE)])
    places.grant(b"/srv/x", judge.WRITE)
    places.grant(b"/srv/y", judge.READ)
    assert places.is_granted(b"/srv/x/a/b", writes=True)
    assert places.is_granted(b"/srv/x", writes=False)
    assert not places.is_granted(b"/srv/xy", writes=True)
    assert not places.is_granted(b"/srv", writes=True)
    assert places.is_granted(b"/srv/y/a", writes=False)
    assert not places.is_granted(b"/srv/y/a", writes=True)


@given(st.lists(st.integers(0, 9)), st.integers(0, 5))
@requirement("denials/records:bounded")
def test_counts_are_true_whatever_is_refused(targets, limit):
    ledger = Ledger("d", limit)
    for target in targets:
        ledger.add("write", "open", b"%d" % target, "rule")
    listed = {record.key[2]: record.count for record in ledger.records.values()}
    assert len(listed) <= limit
    counted = Counter(b"%d" % target for target in targets)
    assert all(counted[target] == count for target, count in listed.items())
    assert sum(listed.values()) + ledger.unlisted == len(targets)
    assert len({record.denial_id for record in ledger.records.values()}) == len(listed)


@given(st.text("abc/", max_size=12).map(lambda text: b"/" + text.encode()))
@requirement("denials/prompt:learn")
def test_what_is_learned_holds_the_path(path):
    folder = judge.to_be_opened(path, frozenset((b"b",)))
    assert judge.is_within(path, folder) or path == b"/"
