"""Directories and trees: fs/readDirectory, fs/walk, fs/copy."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exec_server.files.operations import copy as copies
from exec_server.files.operations import local, nofollow
from exec_server.files.operations import walk as walking
from exec_server.limits import Limits
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.files import FAILED, NOT_FOUND, REFUSED, code, uri
from tests.support.trees import NOT_UTF8, WITH_BREAKS, make_tree, snapshot
from tests.support.wire import PATIENCE, Wire

MAXIMUMS = {"maxDepth": 64, "maxDirectories": 10_000, "maxEntries": 50_000}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_tree(os.fsencode(tmp_path / "tree"))
    return tmp_path / "tree"


def walk_params(root: Path, *, follow: bool = False, **options: Any) -> dict[str, Any]:
    options = {**MAXIMUMS, "followDirectorySymlinks": follow, **options}
    return {"path": uri(root), "options": options}


async def walk(wire: Wire, root: Path, **options: Any) -> tuple[list[str], bool]:
    """The paths below *root*, with a slash after directories, and the member `truncated`."""
    outcome = await wire.call("fs/walk", walk_params(root, **options))
    assert outcome["errors"] == []
    prefix = uri(root) + "/"
    return [
        entry["path"].removeprefix(prefix) + ("/" if entry["kind"] == "directory" else "")
        for entry in outcome["entries"]
    ], outcome["truncated"]


# fs/readDirectory


@requirement("fs/readDirectory:entries")
async def test_a_directory_is_listed_as_the_system_has_it(wire, tree):
    result = await wire.call("fs/readDirectory", {"path": uri(tree)})
    assert result.keys() == {"entries"}
    leads_nowhere = {"to_nothing", "to_itself", "to_loop", "to_other_loop", "to_below_file"}
    expected = [name for name in os.listdir(tree) if name not in leads_nowhere]
    assert [entry["fileName"] for entry in result["entries"]] == expected
    kinds = {e["fileName"]: (e["isDirectory"], e["isFile"]) for e in result["entries"]}
    for name, kind in {
        "file": (False, True),
        "to_file": (False, True),
        "dir": (True, False),
        "to_dir": (True, False),
        "to_parent": (True, False),
        "fifo": (False, False),
        "to_fifo": (False, False),
        "socket": (False, False),
    }.items():
        assert kinds[name] == kind
    linked = await wire.call("fs/readDirectory", {"path": uri(tree / "to_root")})
    assert linked == result


@requirement("fs/readDirectory:entries")
async def test_names_that_are_no_text_are_listed_as_well_as_they_can_be(wire, tmp_path):
    for name in (NOT_UTF8, *WITH_BREAKS, b"caf\xc3\xa9", b"half\xc3"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).touch()
    listed = (await wire.call("fs/readDirectory", {"path": uri(tmp_path)}))["entries"]
    assert {entry["fileName"] for entry in listed} == {
        "\ufffd\ufffd",
        "tab\there",
        "line\nbreak",
        "café",
        "half\ufffd",
    }


NAMES = st.one_of(
    st.sampled_from([b",", b'"', b'","', b"\\", b"}", b",{", b"\x7f", b"\n", b"\xe2\x80\xa8"]),
    st.binary(min_size=1, max_size=6),
).filter(lambda name: not set(name) & {0, 0x2F} and name not in (b".", b".."))


@given(names=st.dictionaries(NAMES, st.booleans(), max_size=12))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@requirement("fs/readDirectory:entries")
async def test_any_names_beside_one_another_are_listed(wire, tmp_path_factory, names):
    root = os.fsencode(tmp_path_factory.mktemp("listed"))
    for name, is_directory in names.items():
        path = os.path.join(root, name)
        os.mkdir(path) if is_directory else os.mknod(path)
    listed = (await wire.call("fs/readDirectory", {"path": uri(root)}))["entries"]
    assert [(e["fileName"], e["isDirectory"], e["isFile"]) for e in listed] == [
        (name.decode("utf-8", "replace"), names[name], not names[name]) for name in os.listdir(root)
    ]


@requirement("fs/readDirectory:errors")
async def test_only_directories_are_listed(wire, tree):
    assert await code(wire, "fs/readDirectory", {"path": uri(tree / "file")}) == FAILED
    assert await code(wire, "fs/readDirectory", {"path": uri(tree / "missing")}) == NOT_FOUND


@pytest.mark.parametrize("count", [9, 10, 11])
@requirement("fs/readDirectory:limit")
async def test_too_many_entries_are_counted_and_refused(tmp_path, count):
    for number in range(count):
        (tmp_path / f"{number}").touch()
    # The dangling link is left out, so it does not count.
    (tmp_path / "to nothing").symlink_to("nothing")
    async with serve(limits=Limits(directory_entries=10)) as server, Wire(server.url) as wire:
        await wire.initialize()
        answer = await wire.answer(await wire.request("fs/readDirectory", {"path": uri(tmp_path)}))
    if count <= 10:
        assert len(answer["result"]["entries"]) == count
    else:
        assert answer["error"] == {
            "code": FAILED,
            "message": "fs/readDirectory returned 11 entries; limit is 10",
        }


@requirement("fs/readDirectory:entries", "fs/readDirectory:limit", "fs/walk:budgets")
async def test_lists_of_thousands_arrive_whole(wire, tmp_path):
    names = {f"{number:x}" for number in range(3501)}
    for name in names:
        (tmp_path / name).touch()
    listed = (await wire.call("fs/readDirectory", {"path": uri(tmp_path)}))["entries"]
    assert {entry["fileName"] for entry in listed} == names
    assert len(listed) == len(names)
    assert await walk(wire, tmp_path) == (sorted(names), False)


# fs/walk


@requirement("fs/walk:order")
async def test_a_walk_goes_level_by_level_and_by_name(wire, tmp_path):
    for name in ("b/z", "b/a/deep", "a/x", ".hid", "Z", "~", "é"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found, truncated = await walk(wire, tmp_path)
    assert not truncated
    assert found == [".hid", "Z", "a/", "b/", "~", "%C3%A9", "a/x", "b/a/", "b/z", "b/a/deep"]


@requirement("fs/walk:links")
async def test_links_are_skipped_or_entered_once(wire, tree):
    found, _ = await walk(wire, tree)
    assert not [path for path in found if "to_" in path or path.startswith(("fifo", "socket"))]
    followed, _ = await walk(wire, tree, follow=True)
    # A linked directory is listed under each name and entered once; links to files are skipped.
    assert {"to_dir/", "to_root/", "to_parent/", "dir/up/", "dir/sub/back/"} <= set(followed)
    assert [p for p in followed if p.startswith(("to_root", "to_dir"))] == ["to_dir/", "to_root/"]
    assert "to_file" not in followed
    assert followed.count("dir/inner") == 1


@requirement("fs/walk:root")
async def test_a_root_that_is_no_directory_is_empty(wire, tree):
    for name in ("file", "fifo", "to_file", "to_dir"):
        assert await walk(wire, tree / name) == ([], False)
    assert "inner" in (await walk(wire, tree / "to_dir", follow=True))[0]
    for name in ("missing", "to_nothing"):
        assert await code(wire, "fs/walk", walk_params(tree / name)) == NOT_FOUND
    assert await code(wire, "fs/walk", walk_params(tree / "file/below")) == FAILED


@requirement("fs/walk:any-name")
async def test_a_walk_finds_names_of_all_kinds(wire, tmp_path):
    names = [NOT_UTF8, *WITH_BREAKS]
    for name in names:
        directory = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(directory)
        os.mkdir(directory + b"/" + name)
    found, _ = await walk(wire, tmp_path, exactNames=True)
    assert len(found) == 6
    for path in found:
        params = {"path": f"{uri(tmp_path)}/{path}"}
        assert (await wire.call("fs/getMetadata", params))["isDirectory"]


@requirement("fs/walk:limits")
async def test_budgets_are_judged_before_the_path(wire):
    def params(**options):
        return {
            "path": "file://elsewhere/x",
            "options": {**walk_params(Path("/"))["options"], **options},
        }

    for options in ({"maxDirectories": 0}, {"maxEntries": 0}, {"maxEntries": 0, "maxDepth": 65}):
        error = await wire.error("fs/walk", params(**options))
        assert error == {
            "code": REFUSED,
            "message": "filesystem walk limits must be greater than zero",
        }
    for options in ({"maxDepth": 65}, {"maxDirectories": 10_001}, {"maxEntries": (1 << 64) - 1}):
        error = await wire.error("fs/walk", params(**options))
        assert error == {
            "code": REFUSED,
            "message": "filesystem walk limits exceed maximums: "
            "depth=64, directories=10000, entries=50000",
        }
    assert "invalid on" in (await wire.error("fs/walk", params()))["message"]


TREES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "b", ".c", "D", "e e"]), st.one_of(st.none(), inner), max_size=4
    ),
    max_leaves=12,
)


def plant(root: Path, plan: dict[str, Any]) -> None:
    for name, inside in plan.items():
        if inside is None:
            (root / name).touch()
        else:
            (root / name).mkdir()
            plant(root / name, inside)


def expected_walk(
    plan: dict[str, Any], *, depth: int, directories: int, entries: int, prune: bool
) -> tuple[list[str], bool]:
    """The expected walk of a tree without links, in the simplest way."""
    found: list[str] = []
    truncated, entered, examined = False, 1, 0
    level = [("", plan, 0)]
    while level:
        prefix, inside, at = level.pop(0)
        for name in sorted(inside):
            if examined == entries:
                return found, True
            examined += 1
            is_directory = inside[name] is not None
            path = prefix + name.replace(" ", "%20") + ("/" if is_directory else "")
            found.append(path)
            if not is_directory or at == depth or (prune and name.startswith(".")):
                continue
            if entered == directories:
                truncated = True
                continue
            entered += 1
            level.append((path, inside[name], at + 1))
    return found, truncated


@given(
    plan=TREES,
    depth=st.integers(0, 4),
    directories=st.integers(1, 8),
    entries=st.integers(1, 20),
    prune=st.booleans(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@requirement("fs/walk:budgets", "fs/walk:order")
async def test_a_walk_keeps_its_budgets(
    wire, tmp_path_factory, plan, depth, directories, entries, prune
):
    root = tmp_path_factory.mktemp("walked")
    plant(root, plan)
    options = {"maxDepth": depth, "maxDirectories": directories, "maxEntries": entries}
    assert await walk(wire, root, pruneHiddenDirectories=prune, **options) == expected_walk(
        plan, depth=depth, directories=directories, entries=entries, prune=prune
    )


@pytest.mark.parametrize("extra", [0, 1])
@requirement("fs/walk:answer-budget")
async def test_a_walk_ends_when_its_answer_is_full(tmp_path, extra):
    for number in range(5):
        (tmp_path / f"{number}").touch()
    cost = len(uri(tmp_path / "0")) + 64
    small = Limits(walk_answer_bytes=5 * cost - extra)
    async with serve(limits=small) as server, Wire(server.url) as wire:
        await wire.initialize()
        found, truncated = await walk(wire, tmp_path)
    assert (len(found), truncated) == (5 - extra, bool(extra))


@requirement("fs/walk:cancelled")
async def test_a_walk_ends_with_its_connection(server, tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).mkdir()
    entered, released = threading.Event(), threading.Event()
    visited: list[bytes] = []
    ended = threading.Event()
    listed, outcome = walking._listed, walking._Walker.outcome

    def slowly(path, exact_names):
        visited.append(path)
        entered.set()
        assert released.wait(PATIENCE)
        return listed(path, exact_names)

    def ending(walker):
        ended.set()
        return outcome(walker)

    monkeypatch.setattr(walking, "_listed", slowly)
    monkeypatch.setattr(walking._Walker, "outcome", ending)
    async with Wire(server.url) as wire:
        await wire.initialize()
        await wire.request("fs/walk", walk_params(tmp_path))
        await asyncio.to_thread(entered.wait, PATIENCE)
        wire.cut()
    await server.core.wait_idle()
    released.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    assert visited == [os.fsencode(tmp_path)]


# fs/copy


def copying(source: Path, destination: Path, *, recursive: bool = False) -> dict[str, Any]:
    return {
        "sourcePath": uri(source),
        "destinationPath": uri(destination),
        "recursive": recursive,
    }


@requirement("fs/copy:onto-itself")
async def test_a_file_survives_being_copied_onto_itself(wire, tree):
    for name in ("file", "hardlink", "to_file", "to_link"):
        for recursive in (False, True):
            params = copying(tree / "file", tree / name, recursive=recursive)
            assert await wire.call("fs/copy", params) == {}
            assert (tree / "file").read_bytes() == b"content"


@requirement("fs/copy:files")
async def test_a_file_is_copied_in_place_with_its_mode(wire, tree):
    (tree / "file").chmod(0o751)
    inode = (tree / "empty").stat().st_ino
    assert await wire.call("fs/copy", copying(tree / "file", tree / "empty")) == {}
    assert (tree / "empty").read_bytes() == b"content"
    assert (tree / "empty").stat().st_ino == inode
    assert stat.S_IMODE((tree / "empty").stat().st_mode) == 0o751
    # The new content is shorter than the old one.
    assert await wire.call("fs/copy", copying(tree / "file", tree / "big")) == {}
    assert (tree / "big").read_bytes() == b"content"
    assert await wire.call("fs/copy", copying(tree / "to_nothing", tree / "new")) == {}
    assert os.readlink(tree / "new") == "nowhere"


@pytest.mark.parametrize("can_kernel", [True, False])
@requirement("fs/copy:large")
async def test_content_is_copied_whole(wire, tmp_path, monkeypatch, can_kernel):
    def cannot(*args):
        raise OSError(18, "other file system")

    if not can_kernel:
        monkeypatch.setattr(os, "copy_file_range", cannot)
    data = os.urandom(1_000_003)
    (tmp_path / "file").write_bytes(data)
    assert await wire.call("fs/copy", copying(tmp_path / "file", tmp_path / "copy")) == {}
    assert (tmp_path / "copy").read_bytes() == data
    # These files have the size 0, and the kernel copies nothing of them.
    assert await wire.call("fs/copy", copying(Path("/proc/version"), tmp_path / "copy")) == {}
    assert (tmp_path / "copy").read_bytes() == Path("/proc/version").read_bytes()


@requirement("fs/copy:directories", "fs/copy:refusals")
async def test_a_tree_is_copied_as_a_tree(wire, tmp_path, tree):
    assert await code(wire, "fs/copy", copying(tree, tmp_path / "copy")) == REFUSED
    os.chmod(tree / "hollow", 0o700)
    params = copying(tree, tmp_path / "on" / "the" / "way", recursive=True)
    assert await wire.call("fs/copy", params) == {}
    expected = snapshot(os.fsencode(tree))
    for special in (b"fifo", b"socket"):
        del expected[special]
    found = snapshot(os.fsencode(tmp_path / "on" / "the" / "way"))
    assert found.keys() == expected.keys()
    for path, (mode, *rest) in expected.items():
        if path in (b"file", b"hardlink"):
            rest = [rest[0], 1]
        if path == b"to_root":
            rest = [os.fsencode(tree)]
        if path == b"setuid" and os.geteuid() != 0:
            # The kernel removes the bit from a file that is written.
            mode = oct(stat.S_IFREG | 0o755)
        if path == b"hollow":
            mode = oct(stat.S_IFDIR | 0o777 & ~current_umask())
        assert found[path] == (mode, *rest), path


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@requirement("fs/copy:refusals")
async def test_what_cannot_be_copied_is_refused(wire, tree):
    before = snapshot(os.fsencode(tree))
    for name in ("fifo", "socket"):
        error = await wire.error("fs/copy", copying(tree / name, tree / "new"))
        assert error == {
            "code": REFUSED,
            "message": "fs/copy only supports regular files, directories, and symlinks",
        }
    for destination in ("dir", "dir/sub/new", "to_dir/new", "dir/sub/back/dir/x"):
        error = await wire.error(
            "fs/copy", copying(tree / "dir", tree / destination, recursive=True)
        )
        assert error == {
            "code": REFUSED,
            "message": "fs/copy cannot copy a directory to itself or one of its descendants",
        }
    # The FIFO has no reader, and the call does not wait for one.
    assert await code(wire, "fs/copy", copying(tree / "file", tree / "fifo")) == FAILED
    assert snapshot(os.fsencode(tree)) == before


@requirement("fs:responsive")
async def test_long_work_leaves_the_loop_to_others(server, wire, tmp_path, monkeypatch):
    """Long calls run in threads, and other requests are answered meanwhile."""
    (tmp_path / "file").write_bytes(os.urandom(2 << 20))
    entered, released = threading.Event(), threading.Event()

    def holding(function):
        def held(*args, **options):
            entered.set()
            assert released.wait(PATIENCE)
            return function(*args, **options)

        return held

    for module, name in (
        (local, "read_all"),
        (nofollow, "read_all"),
        (local, "write_all"),
        (local, "write_content"),
        (local, "remove_tree"),
        (copies, "copy_content"),
        (os, "scandir"),
    ):
        monkeypatch.setattr(module, name, holding(getattr(module, name)))
    (tmp_path / "dir").mkdir()
    path = {"path": uri(tmp_path / "file")}
    async with Wire(server.url) as other:
        await other.initialize()
        for method, params in (
            ("fs/readFile", path),
            ("fs/readFile", {**path, "followSymlinks": False}),
            ("fs/readDirectory", {"path": uri(tmp_path)}),
            ("fs/walk", walk_params(tmp_path)),
            ("fs/copy", copying(tmp_path / "file", tmp_path / "copy")),
            ("fs/writeFile", {**path, "dataBase64": "eHh4" * 100_000}),
            ("fs/append", {**path, "dataBase64": "eA=="}),
            ("fs/remove", {"path": uri(tmp_path / "dir")}),
        ):
            entered.clear()
            released.clear()
            request = await wire.request(method, params)
            assert await asyncio.to_thread(entered.wait, PATIENCE), method
            assert await other.call("environment/status") == {"status": "ready"}
            assert (await other.call("fs/getMetadata", path))["isFile"]
            released.set()
            await wire.answer(request)


@requirement("fs/walk:not-utf8")
async def test_names_that_are_not_utf8_are_errors_unless_exact_names_are_asked_for(wire, tmp_path):
    root = os.fsencode(tmp_path)
    for name in (b"good", b"bad\xff", b"dir\xfe/in"):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).touch()
    above = uri(tmp_path)
    found = await wire.call("fs/walk", walk_params(tmp_path))
    assert found["entries"] == [{"path": f"{above}/good", "kind": "file"}]
    missing = "No such file or directory (os error 2)"
    assert found["errors"] == [
        {"path": f"{above}/bad%EF%BF%BD", "message": missing},
        {"path": f"{above}/dir%EF%BF%BD", "message": missing},
    ]
    exact = await wire.call("fs/walk", walk_params(tmp_path, exactNames=True))
    assert [entry["path"] for entry in exact["entries"]] == [
        f"{above}/{name}" for name in ("bad%FF", "dir%FE", "good", "dir%FE/in")
    ]
    assert not exact["errors"]
    for entry in exact["entries"]:
        assert await wire.call("fs/getMetadata", {"path": entry["path"]})


async def archived(wire: Wire, source: Path, destination: Path) -> None:
    places = {"sourcePath": uri(source), "destinationPath": uri(destination)}
    await wire.call("fs/copy", {**places, "recursive": True, "archive": True})


def aged(root: Path) -> Path:
    """A tree with modes, times and links."""
    (root / "private" / "deep").mkdir(parents=True)
    (root / "private" / "deep" / "file").write_text("content")
    (root / "closed").mkdir()
    (root / "closed" / "file").write_text("x")
    (root / "link").symlink_to("private")
    (root / "private" / "deep" / "file").chmod(0o640)
    for number, name in enumerate(("private/deep/file", "private/deep", "private", "closed", ".")):
        os.utime(root / name, (1_000_000 + number, 2_000_000 + number))
    (root / "private").chmod(0o700)
    (root / "closed").chmod(0o555)
    return root


def facts(root: Path) -> dict[str, tuple[int, int | str, bytes]]:
    found: dict[str, tuple[int, int | str, bytes]] = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = (0, os.readlink(path), b"")
        else:
            content = path.read_bytes() if path.is_file() else b""
            found[name] = (stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)
    return found


@requirement("fs/copy:archive")
async def test_an_archive_keeps_modes_and_times_and_can_be_repeated(wire, tmp_path):
    source, copy = aged(tmp_path / "source"), tmp_path / "new" / "copy"
    await archived(wire, source, copy)
    wanted = facts(source)
    assert facts(copy) == wanted
    # A copy that was interrupted, and one that is newer.
    file = copy / "private" / "deep" / "file"
    kept = file.stat().st_ino
    (copy / "link").unlink()
    (copy / "link").symlink_to("elsewhere")
    file.write_text("cont")
    await archived(wire, source, copy)
    assert facts(copy) == wanted and file.stat().st_ino == kept
    # What has the same size and time is not written.
    file.write_text("CONTENT")
    os.utime(file, ns=(0, (source / "private" / "deep" / "file").stat().st_mtime_ns))
    await archived(wire, source, copy)
    assert file.read_text() == "CONTENT"
    # A file alone.
    await archived(wire, source / "private" / "deep" / "file", tmp_path / "alone")
    assert (tmp_path / "alone").stat().st_mtime == 2_000_000


@requirement("fs/copy:archive")
async def test_an_archive_does_not_follow_links_below_its_destination(wire, tmp_path):
    source, copy = aged(tmp_path / "source"), tmp_path / "copy"
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / "file").write_text("not yours")
    before = facts(tmp_path / "other")
    (copy / "closed").mkdir(parents=True)
    (copy / "private").symlink_to(tmp_path / "other")
    (copy / "closed" / "file").symlink_to(tmp_path / "other" / "file")
    await archived(wire, source, copy)
    assert facts(copy) == facts(source)
    assert facts(tmp_path / "other") == before
    # The destination itself may be a link, as its path may have links.
    (tmp_path / "way").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    await archived(wire, source, tmp_path / "way")
    assert facts(tmp_path / "empty") == facts(source)
