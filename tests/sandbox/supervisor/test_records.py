"""What a supervisor records: one record for each refused attempt, and none for what is allowed."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.supervisor.conftest import Place
from tests.sandbox.test_processes import at, needs_bubblewrap, needs_landlock, on_both_backends
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


@needs_bubblewrap
@needs_landlock
@requirement("denials/records:bounded")
async def test_very_many_refusals_give_a_bounded_list_and_a_true_count(wire, place):
    backend = "bubblewrap" if place.uid == 0 else "landlock"
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


@needs_bubblewrap
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
        "inet stream": ("no network", "network=on"),
        "listening": (
            "no unix sockets of the host",
            f"socket=unix:{place.outside}/listening",
        ),
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


@needs_bubblewrap
@requirement("denials/records:closes-fifos")
async def test_a_new_root_directory_opens_no_fifo_outside(wire, place):
    folder = Path(f"{place.outside}{place.workspace}")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "fifo")
    place.own_all()
    reader = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        results, answer, _ = await tried(wire, place, "bubblewrap", "new-root")
    finally:
        os.close(reader)
    if not answer["denials"] and results["new-root"] == str(errno.EPERM):
        pytest.skip("a command can make no user namespace here")
    assert results["new-root"] == str(errno.EACCES)
    assert keys(answer) == [("write", "open", f"{folder}/fifo")]


@on_both_backends
@requirement("denials/records:mounts-of-the-sandbox")
async def test_a_bind_in_the_form_of_bubblewrap_is_refused(wire, place, backend):
    results, answer, _ = await tried(wire, place, backend, "silent-bind")
    assert results["silent-bind"] == str(errno.EPERM)
    # In bubblewrap the supervisor does not hear of it: it would hear of every mount of a sandbox.
    is_heard = backend == "landlock"
    assert keys(answer) == ([("syscall", "call", "mount")] if is_heard else [])


@on_both_backends
@requirement("denials/records:unforgeable")
async def test_a_command_cannot_write_to_the_channel_of_the_records(wire, place, backend):
    results, answer, done = await tried(wire, place, backend, "write", "forge")
    assert results["forge"] == "done"
    assert keys(answer) == [("write", "open", f"{place.outside}/new")]
    assert "forged" not in str([e for e in done.events if e["method"] == "process/denied"])


@on_both_backends
@requirement("denials/records:unseen")
async def test_a_program_that_hides_its_memory_is_refused_all_the_same(wire, place, backend):
    results, answer, _ = await tried(wire, place, backend, "unseen")
    assert results["unseen"] in (str(errno.EROFS), str(errno.EACCES))
    assert not (place.outside / "unseen").exists()
    # A supervisor with all capabilities reads the memory of every process.
    assert (len(answer["denials"]), answer["unseen"] > 0) in ((1, False), (0, True))


@needs_bubblewrap
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
