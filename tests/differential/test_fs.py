"""fs/*: the same requests over the same trees, to the reference and to ours."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.protocol.paths import to_uri
from tests.requirements import requirement
from tests.support.comparing import Both, ask
from tests.support.servers import OURS, reference_binary, start_server
from tests.support.trees import (
    NOT_UTF8,
    THEN,
    WITH_BREAKS,
    guard,
    make_tree,
    paths_in,
    snapshot,
)
from tests.support.wire import Wire

pytestmark = pytest.mark.one_loop

NOBODY = 65534
HELLO = base64.b64encode(b"hello").decode()

Params = dict[str, Any]
# Given a connection and a root, the outcome of each request by a name for it.
Conversation = Callable[[Wire, bytes], Awaitable[dict[Any, Any]]]


class Stage:
    """Both servers, and places of the same length for what they are told to work on."""

    def __init__(self, both: Both, place: bytes, owner: int) -> None:
        self.both = both
        self._place = place
        self._owner = owner
        self._made = 0

    def place(self) -> bytes:
        """A new directory, alone in its parent."""
        self._made += 1
        root = self._place + b"/%05d/tree" % self._made
        os.makedirs(root)
        os.lchown(root, self._owner, -1)
        return root

    def tree(self) -> bytes:
        """A new tree of everything, which belongs to whom the servers run as."""
        root = self.place()
        self._grow(root)
        return root

    def forest(self, size: int) -> bytes:
        """A directory with trees of everything, named by their number."""
        root = self.place()
        for number in range(size):
            os.mkdir(root + b"/%03d" % number)
            self._grow(root + b"/%03d" % number)
        return root

    def _grow(self, root: bytes) -> None:
        make_tree(root)
        guard(root)
        if os.geteuid() == 0:
            os.mknod(root + b"/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
            os.mknod(root + b"/full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        for folder, directories, files in os.walk(root, topdown=False):
            for name in (*files, *directories):
                self._settle(os.path.join(folder, name))
        self._settle(root)

    def _settle(self, path: bytes) -> None:
        """Change the owner, but not the mode, which the change would."""
        mode = os.lstat(path).st_mode
        os.lchown(path, self._owner, -1)
        if not stat.S_ISLNK(mode):
            os.chmod(path, stat.S_IMODE(mode))
        os.utime(path, (THEN, THEN), follow_symlinks=False)

    async def compare(self, conversation: Conversation, *roots: bytes) -> None:
        """Have *conversation* with both, each about its own root; they must agree."""
        theirs, mine = await asyncio.gather(
            _talk(self.both.reference, conversation, roots[0]),
            _talk(self.both.ours, conversation, roots[-1]),
        )
        different = {key: (theirs[key], mine[key]) for key in theirs if theirs[key] != mine[key]}
        assert not different
        assert theirs.keys() == mine.keys()

    async def compare_changes(self, conversation: Conversation, size: int) -> None:
        """The same for what changes the *size* trees of a forest, and what it leaves behind."""
        theirs, mine = self.forest(size), self.forest(size)
        await self.compare(conversation, theirs, mine)
        before, after = snapshot(theirs), snapshot(mine)
        different = {
            path: (before.get(path), after.get(path))
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        }
        assert not different
        for root in (theirs, mine):
            shutil.rmtree(root)


async def _talk(url: str, conversation: Conversation, root: bytes) -> Any:
    async with Wire(url) as wire:
        await wire.initialize()
        return {
            key: json.loads(json.dumps(value).replace(to_uri(root), "file:///ROOT"))
            for key, value in (await conversation(wire, root)).items()
        }


@pytest.fixture(scope="module", params=["root", "nobody"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Both servers, with all rights and with hardly any."""
    # In memory, where thousands of files are made quickly.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with (
        tempfile.TemporaryDirectory(prefix="fs") as name,
        tempfile.TemporaryDirectory(prefix="fs", dir=memory) as trees,
    ):
        folder, place = Path(name), os.fsencode(os.path.realpath(trees))
        folder.chmod(0o755)
        os.chmod(place, 0o755)
        if request.param == "root":
            yield Stage(request.getfixturevalue("both"), place, os.geteuid())
            return
        if os.geteuid() != 0:
            pytest.skip("only root can start servers as another user")
        yield from _stage_of_nobody(folder, place)


def _stage_of_nobody(folder: Path, place: bytes) -> Iterator[Stage]:
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference could not be installed (npm is missing or has no network)")
    home, reachable = folder / "home", folder / "codex"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    # Where it is installed, only root may go.
    try:
        os.link(binary, reachable)
    except OSError:
        shutil.copy(binary, reachable)
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    try:
        subprocess.run([*as_nobody, *OURS, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("others than root cannot run this interpreter")
    env = {"CODEX_HOME": str(home), "HOME": str(home)}
    with (
        start_server(command=[*as_nobody, str(reachable), "exec-server"], env=env) as theirs,
        start_server(command=[*as_nobody, *OURS], env=env) as ours,
    ):
        yield Stage(Both(theirs.url, ours.url), place, NOBODY)


def uri(root: bytes, path: bytes) -> str:
    return to_uri(os.path.join(root, path) if path else root)


# What only looks.


def without_birth(outcome: Any) -> Any:
    """The reference knows no birth time of what it follows to; ours does."""
    return {**outcome, "createdAtMs": 0} if isinstance(outcome, dict) else outcome


@pytest.mark.parametrize("follow", [None, False])
@requirement("fs/getMetadata:result", "fs/getMetadata:errors", "fs/nofollow:every-component")
async def test_metadata_is_the_same(stage, follow):
    async def conversation(wire, root):
        found = {}
        for path in paths_in(root):
            params = {"path": uri(root, path), "followSymlinks": follow}
            # Twice: the first time the names may not be in the kernel's cache.
            await ask(wire, "fs/getMetadata", params)
            outcome = await ask(wire, "fs/getMetadata", params)
            found[path] = outcome if follow is False else without_birth(outcome)
        return found

    await stage.compare(conversation, stage.tree())


@pytest.mark.parametrize("follow", [None, False])
@requirement("fs/readFile:content", "fs/readFile:errors", "fs/nofollow:every-component")
async def test_a_file_reads_the_same(stage, follow):
    async def conversation(wire, root):
        return {
            path: await ask(
                wire, "fs/readFile", {"path": uri(root, path), "followSymlinks": follow}
            )
            for path in paths_in(root)
        }

    await stage.compare(conversation, stage.tree())


@requirement("fs/canonicalize:result", "fs/canonicalize:errors")
async def test_the_canonical_path_is_the_same(stage):
    async def conversation(wire, root):
        return {
            path: await ask(wire, "fs/canonicalize", {"path": uri(root, path)})
            for path in paths_in(root)
        }

    await stage.compare(conversation, stage.tree())


@requirement("fs/readDirectory:entries", "fs/readDirectory:errors")
async def test_a_directory_reads_the_same(stage):
    root = stage.tree()
    Path(os.fsdecode(root + b"/odd/" + NOT_UTF8)).touch()
    for name in WITH_BREAKS:
        Path(os.fsdecode(root + b"/odd/" + name)).touch()

    async def conversation(wire, root):
        return {
            path: await ask(wire, "fs/readDirectory", {"path": uri(root, path)})
            for path in paths_in(root)
            if b"\xff" not in path
        }

    await stage.compare(conversation, root)


OPTIONS: list[Params] = [
    {},
    {"followDirectorySymlinks": True},
    {"pruneHiddenDirectories": True},
    {"pruneHiddenDirectories": True, "followDirectorySymlinks": True},
    {"maxDepth": 0},
    {"maxDepth": 1, "followDirectorySymlinks": True},
    *({"maxEntries": count} for count in (1, 7, 40)),
    *({"maxDirectories": count} for count in (1, 2, 5)),
    {"maxDirectories": 3, "followDirectorySymlinks": True},
    {"maxEntries": 60, "maxDirectories": 4, "maxDepth": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@requirement("fs/walk:order", "fs/walk:budgets", "fs/walk:links", "fs/walk:root")
async def test_a_walk_finds_the_same(stage, options):
    async def conversation(wire, root):
        found = {}
        for path in paths_in(root):
            outcome = await ask(wire, "fs/walk", walk_params(uri(root, path), **options))
            if isinstance(outcome, dict):
                # Their texts come from another C library.
                outcome["errors"] = [error["path"] for error in outcome["errors"]]
            found[path] = outcome
        return found

    await stage.compare(conversation, stage.tree())


def walk_params(path: str, **options: Any) -> Params:
    defaults = {
        "maxDepth": 64,
        "maxDirectories": 10_000,
        "maxEntries": 50_000,
        "followDirectorySymlinks": False,
    }
    return {"path": path, "options": {**defaults, **options}}


@requirement("fs/walk:not-utf8")
async def test_a_walk_reports_the_same_names_that_are_not_utf8(stage):
    root = stage.place()
    for name in (
        b"good",
        b"bad\xff",
        b"dir\xfe/in",
        b"sub/half\xc3",
        b"twin\xff",
        b"twin\xef\xbf\xbd",
    ):
        path = Path(os.fsdecode(root + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    async def conversation(wire, root):
        found = await ask(wire, "fs/walk", walk_params(uri(root, root)))
        assert isinstance(found, dict) and len(found["errors"]) == 3
        return found

    await stage.compare(conversation, root)


@pytest.mark.parametrize("size", [37, 200])
@requirement("fs/walk:answer-budget")
async def test_a_walk_ends_at_the_same_size(stage, size):
    """Names of *size* bytes, in numbers around what the answer may weigh."""
    root = stage.place()
    cost = len(to_uri(root + b"/")) + 1 + size + 64
    fits = 4_194_304 // cost
    for index in range(fits + 2):
        Path(os.fsdecode(root + b"/" + b"%0*d" % (size, index))).touch()

    async def conversation(wire, root):
        outcome = await ask(wire, "fs/walk", walk_params(to_uri(root)))
        return {"count": len(outcome["entries"]), "truncated": outcome["truncated"]}

    await stage.compare(conversation, root)
    shutil.rmtree(root)


@requirement("fs/readBlock:block", "fs/readBlock:eof", "fs/open:read")
async def test_blocks_read_the_same(stage):
    async def conversation(wire, root):
        found: dict[Any, Any] = {}
        for path in paths_in(root):
            opened = await ask(wire, "fs/open", {"handleId": "h", "path": uri(root, path)})
            found[path, "open"] = opened
            for offset, size in ((0, 1), (0, 7), (3, 100), (7, 1), (8, 1), (1 << 40, 5)):
                params = {"handleId": "h", "offset": offset, "len": size}
                found[path, offset, size] = await ask(wire, "fs/readBlock", params)
            found[path, "close"] = await ask(wire, "fs/close", {"handleId": "h"})
        return {str(key): value for key, value in found.items()}

    await stage.compare(conversation, stage.tree())


# What changes something: each request has a tree of its own.

SOME = [
    b"",
    b"file",
    b"empty",
    b"hardlink",
    b"setuid",
    b"readonly",
    b"secret",
    b"dir",
    b"dir/inner",
    b"dir/sub",
    b"dir/new",
    b"hollow",
    b"new",
    b"new/below",
    b"new/far/below",
    b"file/below",
    b"socket",
    b"odd/a b",
    b"closed",
    b"closed/file",
    b"closed/new",
    b"listed",
    b"listed/file",
    b"listed/new",
    b"searched",
    b"searched/file",
    b"searched/dir",
    b"searched/new",
    b"sealed",
    b"sealed/file",
    b"sealed/new",
    b"sealed/dir",
    b"to_file",
    b"to_link",
    b"to_dir",
    b"to_dir/inner",
    b"to_dir/new",
    b"to_nothing",
    b"to_nothing/below",
    b"to_itself",
    b"to_loop",
    b"to_below_file",
    b"null",
    b"full",
    b"z" * 256,
]
# Where the reference waits for a reader, and so do we.
FIFOS = [b"fifo", b"to_fifo", b"fifo/below"]

CHANGES: list[tuple[str, Params]] = [
    ("fs/writeFile", {"dataBase64": HELLO}),
    ("fs/writeFile", {"dataBase64": ""}),
    ("fs/writeFile", {"dataBase64": HELLO, "followSymlinks": False}),
    ("fs/createDirectory", {}),
    ("fs/createDirectory", {"recursive": False}),
    ("fs/createDirectory", {"followSymlinks": False}),
    ("fs/createDirectory", {"recursive": False, "followSymlinks": False}),
    ("fs/remove", {}),
    ("fs/remove", {"recursive": False}),
    ("fs/remove", {"force": False}),
    ("fs/remove", {"recursive": False, "force": False}),
    ("fs/remove", {"followSymlinks": False}),
    ("fs/remove", {"recursive": False, "followSymlinks": False}),
    ("fs/remove", {"recursive": False, "force": False, "followSymlinks": False}),
    ("fs/open", {"handleId": "h", "mode": "replace"}),
]


@pytest.mark.parametrize(("method", "params"), CHANGES, ids=str)
@requirement(
    "fs/writeFile:in-place",
    "fs/writeFile:errors",
    "fs/createDirectory:result",
    "fs/remove:result",
    "fs/open:replace",
    "fs/nofollow:every-component",
)
async def test_a_change_does_the_same(stage, method, params):
    is_followed_write = method == "fs/writeFile" and "followSymlinks" not in params
    paths = SOME if is_followed_write else [*SOME, *FIFOS]
    if method == "fs/remove":
        # What cannot be removed ends it, and which part was until then is left to chance.
        paths = [path for path in paths if path]

    async def conversation(wire, forest):
        found = {}
        for number, path in enumerate(paths):
            target = uri(forest + b"/%03d" % number, path)
            found[path] = await ask(wire, method, {"path": target, **params})
            await ask(wire, "fs/close", {"handleId": "h"})
        return found

    await stage.compare_changes(conversation, len(paths))


# A file to everything, everything to a new name, directories to directories.
COPIES = [
    *(
        (b"file", path)
        for path in SOME
        if path not in (b"file", b"hardlink", b"to_file", b"to_link")
    ),
    *((path, b"copied") for path in [*SOME, *FIFOS, b"big"]),
    *((path, b"made/on/the/way") for path in (b"dir", b"file", b"to_dir", b"hollow")),
    (b"setuid", b"empty"),
    (b"dir", b"dir"),
    (b"dir", b"dir/sub/below"),
    (b"dir", b"dir/sub"),
    (b"dir", b"directory"),
    (b"dir", b"to_dir"),
    (b"dir", b"to_dir/below"),
    (b"dir/sub", b"dir"),
    (b"dir", b"hollow"),
    (b"dir", b"hollow/new"),
    (b"dir", b"file"),
    (b"dir", b"to_nothing"),
    (b"dir", b"to_nothing/below"),
    (b"dir", b"other"),
    (b"other", b"dir"),
    (b"other", b"dir/up"),
    (b"", b"other"),
    (b"odd", b"hollow"),
    (b"to_file", b"empty"),
    (b"to_nothing", b"new"),
]


@pytest.mark.parametrize("recursive", [True, False])
@requirement("fs/copy:files", "fs/copy:directories", "fs/copy:refusals")
async def test_a_copy_does_the_same(stage, recursive):
    async def conversation(wire, forest):
        found = {}
        for number, (source, destination) in enumerate(COPIES):
            root = forest + b"/%03d" % number
            params = {"sourcePath": uri(root, source), "destinationPath": uri(root, destination)}
            found[source, destination] = await ask(
                wire, "fs/copy", {**params, "recursive": recursive}
            )
        return {str(key): value for key, value in found.items()}

    await stage.compare_changes(conversation, len(COPIES))


# What is told without any tree.

HERE = "file:///tmp"
GONE = "file:///tmp/no-such-thing"
FOREIGN = "file://elsewhere/x"
LIMITS = {"maxDepth": 1, "maxDirectories": 1, "maxEntries": 1, "followDirectorySymlinks": False}

ODD_REQUESTS: list[tuple[str, Any]] = [
    *(("fs/readFile", {"path": path}) for path in (1, None, "", "x", "/tmp", FOREIGN, ["x"])),
    *(
        ("fs/readFile", {"path": path})
        for path in ("file:///%zz", "file:///a?b", "file:///a#", "file:///C:/x", "http://x/y")
    ),
    ("fs/readFile", {}),
    ("fs/readFile", None),
    ("fs/readFile", {"path": HERE, "followSymlinks": 1}),
    ("fs/readFile", {"path": HERE, "sandbox": 1}),
    ("fs/readFile", {"path": "file:///", "followSymlinks": False}),
    *(
        ("fs/writeFile", {"path": GONE + "/x", "dataBase64": text})
        for text in (None, 1, "?", "QQ", "QR==", "Q Q=", "=QQ=", "QQ==\n", "QUI-", "QQ==QQ==")
    ),
    ("fs/writeFile", {"path": FOREIGN, "dataBase64": "?"}),
    ("fs/writeFile", {"path": FOREIGN, "dataBase64": ""}),
    ("fs/writeFile", {"path": HERE}),
    ("fs/writeFile", {"path": "file:///", "dataBase64": ""}),
    ("fs/writeFile", {"path": "file:///", "dataBase64": "", "followSymlinks": False}),
    ("fs/open", {"handleId": "é" * 17, "path": FOREIGN}),
    ("fs/open", {"handleId": "h", "path": FOREIGN}),
    *(("fs/open", {"handleId": "h", "path": HERE, "mode": mode}) for mode in (None, "x", 1)),
    *(("fs/readBlock", {"handleId": "h", "offset": 0, "len": n}) for n in (0, 1, 1.0, -1, 1 << 64)),
    ("fs/readBlock", {"handleId": "h", "offset": (1 << 64) - 1, "len": 1 << 20}),
    ("fs/readBlock", {"handleId": "h", "offset": 0, "len": (1 << 20) + 1}),
    *(("fs/writeBlock", {"handleId": "h", "offset": 0, "chunk": c}) for c in ("", "?", "eA==")),
    ("fs/writeBlock", {"handleId": "h", "offset": (1 << 63) - 1, "chunk": "eA=="}),
    ("fs/close", {"handleId": "x" * 33}),
    ("fs/close", {"handleId": "unknown"}),
    ("fs/close", {"handleId": None}),
    *(("fs/walk", {"path": FOREIGN, "options": {**LIMITS, **change}}) for change in (
        {"maxDepth": 65},
        {"maxEntries": 0},
        {"maxDirectories": 10_001},
        {"maxEntries": 50_001, "maxDirectories": 0},
        {"maxDepth": None},
        {"pruneHiddenDirectories": None},
        {"followDirectorySymlinks": 0},
        {},
    )),
    ("fs/walk", {"path": HERE}),
    ("fs/walk", {"path": GONE, "options": LIMITS}),
    ("fs/remove", {"path": FOREIGN, "followSymlinks": False}),
    ("fs/remove", {"path": "file:///", "recursive": False}),
    ("fs/remove", {"path": "file:///", "recursive": False, "followSymlinks": False}),
    ("fs/remove", {"path": GONE, "recursive": None, "force": None}),
    ("fs/createDirectory", {"path": "file:///"}),
    ("fs/createDirectory", {"path": "file:///", "recursive": False}),
    ("fs/createDirectory", {"path": "file:///", "followSymlinks": False}),
    ("fs/createDirectory", {"path": "file:///", "recursive": False, "followSymlinks": False}),
    *(
        ("fs/copy", {"sourcePath": HERE, "destinationPath": GONE, "recursive": recursive})
        for recursive in (None, 0, False)
    ),
    ("fs/copy", {"sourcePath": GONE, "destinationPath": FOREIGN, "recursive": False}),
    ("fs/copy", {"sourcePath": HERE, "destinationPath": GONE}),
    *(("fs/watchMissing", {"watchId": n, "missing": []}) for n in (-1, 1.5, None, 1 << 64, 3)),
    ("fs/watchMissing", {"watchId": 4, "missing": [FOREIGN]}),
    ("fs/watchMissing", {"watchId": 5, "missing": ["x"]}),
    ("fs/watchMissing", {"watchId": 6, "missing": None}),
    ("fs/nonsense", {}),
]  # fmt: skip


@pytest.mark.parametrize("handshake", [True, False])
@requirement("fs:shape-first", "fs:foreign-path", "fs:handshake", "fs/walk:limits", "fs/handle:id")
async def test_odd_requests_are_refused_alike(both, handshake):
    async def conversation(wire):
        # A native path is ours and the older documents'.
        requests = [item for item in ODD_REQUESTS if item[1] != {"path": "/tmp"}]
        return [(method, params, await ask(wire, method, params)) for method, params in requests]

    theirs, mine = await both.hear(conversation, handshake=handshake)
    assert [pair for pair in zip(theirs, mine, strict=True) if pair[0] != pair[1]] == []


@requirement(
    "fs/handle:duplicate", "fs/handle:count", "fs/readBlock:errors", "fs/writeBlock:errors"
)
async def test_handles_live_and_die_alike(both, tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")

    async def conversation(wire):
        file, gone = uri(os.fsencode(tmp_path), b"file"), uri(os.fsencode(tmp_path), b"gone")
        written = uri(os.fsencode(tmp_path), b"w%d" % hash(wire.url))
        said = []

        async def say(method, **params):
            said.append((method, await ask(wire, method, params)))

        await say("fs/open", handleId="h", path=file)
        await say("fs/open", handleId="h", path=gone)
        await say("fs/open", handleId="i", path=gone)
        for offset, size in ((0, 4), (8, 4), (10, 1), (0, 0), ((1 << 63) - 2, 1)):
            await say("fs/readBlock", handleId="h", offset=offset, len=size)
        await say("fs/writeBlock", handleId="h", offset=0, chunk="eA==")
        await say("fs/readBlock", handleId="h", offset=0, len=1)
        await say("fs/open", handleId="h", path=file)
        await say("fs/readBlock", handleId="h", offset=1 << 63, len=1)
        await say("fs/readBlock", handleId="h", offset=0, len=1)
        await say("fs/open", handleId="w", path=written, mode="replace")
        await say("fs/writeBlock", handleId="w", offset=3, chunk="eHh4")
        await say("fs/readFile", path=written)
        await say("fs/writeBlock", handleId="w", offset=1 << 63, chunk="eHh4")
        await say("fs/writeBlock", handleId="w", offset=0, chunk="")
        await say("fs/readBlock", handleId="w", offset=0, len=1)
        await say("fs/close", handleId="w")
        for number in range(130):
            await say("fs/open", handleId=str(number), path=file)
        await say("fs/open", handleId="", path=gone)
        return [
            (method, {**outcome, "handleId": ""} if isinstance(outcome, dict) else outcome)
            for method, outcome in said
        ]

    await both.agree(conversation)


WATCHED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "created": lambda root: (root / "missing").touch(),
    "sibling": lambda root: (root / "missing2").touch(),
    "renamed in": lambda root: (root / "other").rename(root / "missing"),
    "parent chmod-ed": lambda root: root.chmod(0o711),
    "parent moved": lambda root: root.rename(root.parent / "moved"),
    "present written": lambda root: (root / "present").write_text("x"),
    "present read": lambda root: (root / "present").read_text(),
    "present removed": lambda root: (root / "present").unlink(),
    "present linked": lambda root: os.link(root / "present", root / "link"),
    "present replaced": lambda root: (root / "other").rename(root / "present"),
}


UNNOTICED = ("nothing", "sibling", "present read", "present linked")


@pytest.mark.parametrize("change", WATCHED)
@requirement("fs/watchMissing:fires", "fs/watchMissing:quiet")
async def test_watches_fire_alike(both, tmp_path, change):
    async def conversation(wire):
        place = tmp_path / f"{hash(wire.url)}"
        root, marker = place / "root", place / "marker"
        root.mkdir(parents=True)
        for name in ("present", "other"):
            (root / name).write_text("old")
        params = {"watchId": 1, "missing": [uri(os.fsencode(root), b"missing")]}
        params["present"] = uri(os.fsencode(root), b"present")
        assert await ask(wire, "fs/watchMissing", params) == {"watching": True}
        async with Wire(wire.url) as other:
            await other.initialize()
            # Fires after everything that was changed before it.
            params = {"watchId": 1, "missing": [uri(os.fsencode(place), b"marker")]}
            assert await ask(other, "fs/watchMissing", params) == {"watching": True}
            WATCHED[change](root)
            marker.touch()
            await other.find(lambda message: message.get("method") == "fs/missingChanged")
        # The reference notices each in a task of its own, which may come later on a busy machine.
        told = []
        if change not in UNNOTICED:
            told = [await wire.find(lambda message: message.get("method") == "fs/missingChanged")]
        for _ in range(20):
            await ask(wire, "environment/status", {})
        return [message["method"] for message in (*told, *wire.unread)]

    await both.agree(conversation)
