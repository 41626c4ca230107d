"""What has to be done to make one tree from another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.client.files.transfer.transfer_plan import make_plan
from exec_server.client.files.transfer.tree import TreeEntry, check_path, parent, part_name
from exec_server.errors import ProtocolError
from tests.requirements import requirement

ROOT = TreeEntry(b"", "directory")


def planned(*source: TreeEntry, there: tuple[TreeEntry, ...] = ()):
    return make_plan([ROOT, *source], {entry.path: entry for entry in (ROOT, *there)})


@requirement("client/transfer:plan", "client/transfer:skip")
def test_a_file_with_the_same_size_and_time_is_kept():
    here = TreeEntry(b"f", "file", 5, 1_000_000_999, 0o644)
    assert planned(here, there=(TreeEntry(b"f", "file", 5, 1_000_000_000, 0o644),)).kept == [here]
    for other in (
        TreeEntry(b"f", "file", 6, 1_000_000_000),
        TreeEntry(b"f", "file", 5, 2_000_000_000),
    ):
        plan = planned(here, there=(other,))
        assert (plan.kept, plan.files) == ([], [(here, other)])
    assert planned(here).files == [(here, None)]


@requirement("client/transfer:plan", "client/transfer:skip")
def test_only_a_known_mode_differs():
    here = TreeEntry(b"f", "file", 5, 0, 0o644)
    assert planned(here, there=(TreeEntry(b"f", "file", 5, 0, 0o600),)).modes == [here]
    assert planned(here, there=(TreeEntry(b"f", "file", 5, 0),)).modes == []
    assert planned(TreeEntry(b"f", "file", 5), there=(here,)).modes == []


@requirement("client/transfer:plan")
def test_links_are_compared_by_what_they_say():
    link = TreeEntry(b"l", "symlink", target=b"a")
    assert planned(link, there=(TreeEntry(b"l", "symlink", 9, 9, 0o7, b"a"),)).links == []
    other = TreeEntry(b"l", "symlink", target=b"b")
    assert planned(link, there=(other,)).links == [(link, other)]


@requirement("client/transfer:plan", "client/transfer:obstacles")
@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("file", "directory"),
        ("file", "other"),
        ("symlink", "directory"),
        ("symlink", "other"),
        ("directory", "file"),
        ("directory", "symlink"),
        ("directory", "other"),
    ],
)
def test_what_is_in_the_way_is_told(here, there):
    plan = planned(TreeEntry(b"x", here), TreeEntry(b"y", "file"), there=(TreeEntry(b"x", there),))
    assert [path for path, _ in plan.obstacles] == [b"x"]
    assert [copy.entry.path for copy in plan.files] == [b"y"]


@requirement("client/transfer:plan", "client/transfer:obstacles")
def test_what_is_below_an_obstacle_is_not_tried():
    source = [
        TreeEntry(b"d", "directory"),
        TreeEntry(b"d/e", "directory"),
        TreeEntry(b"d/e/f", "file"),
    ]
    plan = planned(*source, there=(TreeEntry(b"d", "symlink", target=b"/etc"),))
    assert len(plan.obstacles) == 1 and plan.files == [] and len(plan.directories) == 1


@requirement("client/transfer:plan", "client/transfer:special")
def test_special_files_are_skipped():
    fifo = TreeEntry(b"p", "other")
    assert planned(fifo, there=(TreeEntry(b"p", "file"),)).skipped == [fifo]


_entries = st.dictionaries(
    st.sampled_from([b"a", b"a/b", b"a/b/c", b"d", b"d/e"]),
    st.tuples(
        st.sampled_from(["file", "directory", "symlink", "other"]),
        st.integers(0, 2),
        st.integers(0, 2).map(lambda ms: ms * 1_000_000),
        st.sampled_from([b"", b"x"]),
    ),
)


def entry_of(path: bytes, rest: Any) -> TreeEntry:
    kind, size, time, target = rest
    return TreeEntry(path, kind, size, time, 0o600, target)


@requirement("client/transfer:plan")
@given(here=_entries, there=_entries)
def test_everything_is_dealt_with_once_and_parents_first(here, there):
    source = [entry_of(path, rest) for path, rest in sorted(here.items())]
    existing = {path: entry_of(path, rest) for path, rest in there.items()}
    plan = make_plan(source, existing)
    told = [
        *(copy.entry.path for copy in (*plan.directories, *plan.files, *plan.links)),
        *(entry.path for entry in (*plan.kept, *plan.skipped)),
        *(obstacle.path for obstacle in plan.obstacles),
    ]
    assert len(told) == len(set(told))
    blocked = {obstacle.path for obstacle in plan.obstacles}
    for entry in source:
        is_same_link = (
            entry.kind == "symlink"
            and entry.path in existing
            and existing[entry.path].kind == "symlink"
            and existing[entry.path].target == entry.target
        )
        is_below = any(entry.path.startswith(path + b"/") for path in blocked)
        assert (entry.path in told) or is_same_link or is_below
    order = [copy.entry.path for copy in plan.directories]
    for path in order:
        assert parent(path) not in order[order.index(path) :]


# Names.


@requirement("client/transfer:no-traversal")
@pytest.mark.parametrize(
    "path", [b"..", b"../a", b"a/../b", b"a/..", b".", b"./a", b"/a", b"a//b", b"a/", b"a\0b"]
)
def test_names_that_lead_elsewhere_are_refused(path):
    with pytest.raises(ProtocolError):
        check_path(path)


@requirement("client/transfer:no-traversal")
@pytest.mark.parametrize("path", [b"", b"a", b"a/b", b"...", b"..a", b"\xff", b"a\nb", b"-"])
def test_other_names_are_names(path):
    assert check_path(path) == path


@requirement("client/transfer:stale-part")
def test_a_part_tells_which_version_it_is_of():
    entry = TreeEntry(b"d/f", "file", 5, 1_000_000_000)
    name = part_name(entry, b"f")
    assert name.startswith(b"f.") and name.endswith(b".part")
    assert name == part_name(TreeEntry(b"f", "file", 5, 1_000_000_999), b"f")
    others = {
        part_name(TreeEntry(b"f", "file", 6, 0), b"f"),
        part_name(TreeEntry(b"f", "file", 5, 0), b"f"),
    }
    assert len(others | {name}) == 3
    assert len(part_name(entry, b"n" * 255)) <= 255
    assert part_name(entry, b"n" * 255) != part_name(entry, b"n" * 254 + b"m")
