"""What a supervisor records: one record for each refused attempt, and none for what is allowed."""

from __future__ import annotations

import errno
import os
import platform
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.escape.users import user
from tests.sandbox.test_processes import at, managed, on_both_backends, special
from tests.support.servers import CHILDREN, ServerProcess, start_server
from tests.support.wire import Wire

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]

# The attempts that are refused on both backends, each with its record.
REFUSED = {
    "write": ("write", "open", "{outside}/new"),
    "old": ("write", "open", "{outside}/old"),
    "mkdir": ("write", "mkdir", "{outside}/made"),
    "rename": ("write", "rename", "{outside}/moved"),
    "unlink": ("write", "unlink", "{outside}/old"),
    "mount": ("syscall", "call", "mount"),
    "unshare": ("syscall", "call", "unshare"),
    "symlink": ("write", "symlink", "{outside}/link"),
    "unix": ("socket", "connect", "unix:{outside}/listening"),
    "inet": ("socket", "socket", "inet stream"),
    "ptrace": ("syscall", "call", "ptrace"),
    "uring": ("syscall", "call", "io_uring_setup"),
}
IN_BUBBLEWRAP = {"protected": ("write", "open", "{workspace}/.git/config")}
X32 = {"x32": ("syscall", "call", "x32 call 39")} if platform.machine() == "x86_64" else {}
ALLOWED = ("own", "own-mkdir", "look", "null", "pair", "missing", "exists", "missing-folder")
FAILS_ANYWAY = ("no-socket",)


class Place:
    """A workspace, a directory outside of it, and a server that runs as one user."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.workspace, self.outside = folder / "workspace", folder / "outside"
        for path in (self.workspace / ".git", self.outside):
            path.mkdir(parents=True)
        for name in (".git/config", "mine"):
            (self.workspace / name).write_text("old")
        for name in ("old", "secret"):
            (self.outside / name).write_text("old")
        os.mkfifo(self.outside / "fifo")
        (self.workspace / "out").symlink_to(self.outside)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.outside / "listening"))
        self.listener.listen()

    def own(self, uid: int, gid: int) -> None:
        for path in (self.workspace, self.outside):
            for each in (path, *path.rglob("*")):
                os.chown(each, uid, gid, follow_symlinks=False)

    def sandbox(self, backend: str, *entries: Any, **members: Any) -> Any:
        is_landlock = backend == "landlock"
        rules = (special("root", "read"), at(self.workspace, "write"), *entries)
        return managed(
            *rules, useLegacyLandlock=is_landlock, protectMetadata=not is_landlock, **members
        )

    def argv(self, *attempts: str) -> list[str]:
        places = (self.workspace, self.outside, self.outside / "listening")
        script = str(CHILDREN / "tries_what_is_refused.py")
        return ["python3", "-I", "-S", "-B", script, *map(str, places), *attempts]

    def shown(self, what: tuple[str, str, str]) -> tuple[str, str, str]:
        kind, operation, target = what
        return (
            kind,
            operation,
            target.format(workspace=self.workspace, outside=self.outside),
        )


@pytest.fixture(scope="module", params=["root", "nobody"])
def place(request) -> Iterator[Place]:
    found = user(request.param)
    if found is None:
        pytest.skip(f"no server can run as {request.param} here")
    env = {"PYTHONPATH": found.path, "HOME": "/"}
    with (
        tempfile.TemporaryDirectory(prefix="denials-") as folder,
        start_server(command=found.command, env=env, cwd="/") as server,
    ):
        # The folders of pytest are closed to other users.
        os.chmod(folder, 0o755)
        place = Place(server, Path(folder))
        place.own(found.uid, found.gid)
        with place.listener:
            yield place


@pytest.fixture
async def wire(place):
    async with Wire(place.server.url) as wire:
        await wire.initialize()
        yield wire


async def tried(wire: Wire, place: Place, backend: str, *attempts: str, **more: Any) -> Any:
    """The results of *attempts* by name, and the answer of `process/denials`."""
    sandbox = more.pop("sandbox", None) or place.sandbox(backend)
    argv = place.argv(*attempts)
    cwd = f"file://{place.workspace}"
    done = await wire.run("p", argv, sandbox=sandbox, denials=True, cwd=cwd, **more)
    assert done.exit_code == 0, done.stderr
    results = dict(line.split() for line in done.stdout.decode().splitlines())
    return results, await wire.call("process/denials", {"processId": "p"}), done


def keys(answer: Any) -> list[tuple[str, str, str]]:
    return [(d["kind"], d["operation"], d["target"]) for d in answer["denials"]]


@on_both_backends
@requirement("denials/records:one-for-each")
async def test_each_refused_attempt_has_one_record_and_what_is_allowed_has_none(
    wire, place, backend
):
    refused = REFUSED | X32 | (IN_BUBBLEWRAP if backend == "bubblewrap" else {})
    results, answer, done = await tried(wire, place, backend, *ALLOWED, *refused, *FAILS_ANYWAY)
    assert keys(answer) == [place.shown(what) for what in refused.values()]
    assert {denial.get("count", 1) for denial in answer["denials"]} == {1}
    assert (answer["total"], answer["unlisted"], answer["unseen"]) == (len(refused), 0, 0)
    assert "done" not in {results[name] for name in (*refused, *FAILS_ANYWAY)}
    assert {results[name] for name in ("own", "own-mkdir", "look", "null", "pair")} == {"done"}
    for denial in answer["denials"]:
        assert denial["pid"] > 0
        assert os.path.basename(denial["exe"]).startswith("python")
    events = [e["params"]["denial"] for e in done.events if e["method"] == "process/denied"]
    assert len(events) <= len(refused)


@on_both_backends
@requirement("denials/records:one-for-each")
async def test_every_spelling_of_a_path_is_the_same_record(wire, place, backend):
    _, answer, _ = await tried(wire, place, backend, "write", "link-out", "relative", "at")
    assert keys(answer) == [("write", "open", f"{place.outside}/new")]
    assert answer["denials"][0]["count"] == answer["total"] == 4
    assert answer["denials"][0]["rule"] == "outside the writable directories"
    assert answer["denials"][0]["grant"] == f"write={place.outside}/new"


@on_both_backends
@requirement("denials/records:bounded")
async def test_very_many_refusals_give_a_bounded_list_and_a_true_count(wire, place, backend):
    _, answer, _ = await tried(wire, place, backend, "many")
    assert len(answer["denials"]) == 256
    assert answer["total"] == 20_000
    listed = sum(denial["count"] for denial in answer["denials"])
    assert answer["unlisted"] == 20_000 - listed > 0


@on_both_backends
@requirement("denials/records:printable")
async def test_control_characters_are_escaped_and_cannot_be_granted(wire, place, backend):
    _, answer, _ = await tried(wire, place, backend, "control")
    (denial,) = answer["denials"]
    assert denial["target"] == f"{place.outside}/a\\x1b[31m\\nb"
    assert "grant" not in denial


@requirement("denials/records:rules")
async def test_a_record_names_its_rule_and_what_the_server_protects_cannot_be_granted(wire, place):
    sandbox = place.sandbox("bubblewrap", at(place.outside / "secret", "deny"))
    attempts = ("read", "protected", "write", "inet", "unix")
    results, answer, _ = await tried(wire, place, "bubblewrap", *attempts, sandbox=sandbox)
    found = {d["target"].rpartition("/")[2]: (d["rule"], d.get("grant")) for d in answer["denials"]}
    assert found == {
        "secret": ("denied path of the policy", f"read={place.outside}/secret"),
        "config": ("protected name", None),
        "new": ("outside the writable directories", f"write={place.outside}/new"),
        "inet stream": ("no network", None),
        "listening": ("no unix sockets of the host", None),
    }
    assert set(results.values()) <= {str(errno.EACCES), str(errno.EROFS), str(errno.EPERM)}


@on_both_backends
@requirement("denials/records:closes-fifos")
async def test_a_fifo_outside_cannot_be_written_to(wire, place, backend):
    reader = os.open(place.outside / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        results, answer, _ = await tried(wire, place, backend, "fifo")
    finally:
        os.close(reader)
    assert results["fifo"] == str(errno.EACCES)
    assert keys(answer) == [("write", "open", f"{place.outside}/fifo")]


@on_both_backends
@requirement("denials/records:unseen")
async def test_a_program_that_hides_its_memory_is_refused_all_the_same(wire, place, backend):
    results, answer, _ = await tried(wire, place, backend, "unseen")
    assert results["unseen"] in (str(errno.EROFS), str(errno.EACCES))
    assert not (place.outside / "unseen").exists()
    # A supervisor with all capabilities reads the memory of every process.
    assert (len(answer["denials"]), answer["unseen"] > 0) in ((1, False), (0, True))


@requirement("denials/records:asked-for")
async def test_without_being_asked_for_there_are_no_records(wire, place):
    sandbox = place.sandbox("bubblewrap")
    started = await wire.start("p", place.argv("write"), sandbox=sandbox)
    assert "denials" not in started
    events = await wire.events_until_closed("p")
    assert "process/denied" not in {event["method"] for event in events}
    error = await wire.error("process/denials", {"processId": "p"})
    assert error["message"] == "process p was started without `denials`"


@requirement("denials/records:unavailable")
async def test_it_is_said_why_nothing_is_recorded(wire, place):
    started = await wire.start("p", place.argv("write"), denials=True)
    assert started["denials"] == ["host"]
    assert started["denialsUnavailable"] == "the process has no sandbox"
    await wire.events_until_closed("p")
