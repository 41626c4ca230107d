"""What was refused is granted: the held call goes on in place, or is refused after its time."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from exec_server.sandbox.supervisor.orders import obstacle
from tests.requirements import requirement
from tests.sandbox.supervisor.conftest import Place
from tests.sandbox.test_processes import at, needs_bubblewrap, needs_landlock, on_both_backends
from tests.support.leaks import children, command
from tests.support.servers import CHILDREN, start_server
from tests.support.wire import PATIENCE, Finished, Wire

pytestmark = [
    pytest.mark.one_loop,
    pytest.mark.skipif(obstacle() is not None, reason=f"no supervisor here: {obstacle()}"),
]

HOLD = 30_000


class Worker:
    """A sandboxed process that does what it is told, and the records about it."""

    def __init__(self, wire: Wire, process_id: str = "p") -> None:
        self.wire = wire
        self.process_id = process_id

    async def start(self, sandbox: Any, **params: Any) -> Any:
        argv = ["python3", "-I", "-S", "-B", str(CHILDREN / "tries_when_told.py")]
        more = {"sandbox": sandbox, "denials": True, "pipeStdin": True, **params}
        started = await self.wire.start(self.process_id, argv, **more)
        await self.wire.output_until(self.process_id, b"ready")
        return started

    async def ask(self, *words: object) -> None:
        line = " ".join(map(str, words)) + "\n"
        await self.wire.write(self.process_id, line.encode())

    async def said(self, text: bytes) -> None:
        await self.wire.output_until(self.process_id, text + b"\n")

    async def denied(self) -> Any:
        return (await self.wire.event(self.process_id, "process/denied"))["denial"]

    def params(self, denial: Any, scope: str) -> Any:
        return {"processId": self.process_id, "grant": denial["grant"], "scope": scope}

    async def grant(self, denial: Any, scope: str = "once") -> Any:
        return await self.wire.call("process/grant", self.params(denial, scope))

    async def restart(self, denial: Any) -> None:
        params = {**self.params(denial, "process"), "restart": True}
        result = await self.wire.call("process/grant", params)
        assert result == {"released": 0, "inPlace": False, "restarted": self.process_id}

    async def end(self) -> Finished:
        await self.wire.call("process/closeStdin", {"processId": self.process_id})
        return Finished(await self.wire.events_until_closed(self.process_id))


@pytest.fixture
async def worker(wire):
    return Worker(wire)


@on_both_backends
@requirement("denials/grants:once")
async def test_a_held_open_returns_the_file_and_the_next_one_is_asked_again(worker, place, backend):
    await worker.start(place.sandbox(backend), denialHoldMs=HOLD)
    target = place.outside / "granted"
    await worker.ask("write", target)
    denial = await worker.denied()
    assert (denial["target"], denial["held"]) == (str(target), True)
    assert not target.exists()
    assert await worker.grant(denial) == {"released": 1, "inPlace": False}
    await worker.said(b"done")
    assert target.read_text() == "new"
    assert target.stat().st_uid == place.uid
    target.unlink()
    await worker.ask("write", target)
    again = await worker.denied()
    assert (again["denialId"], again["held"], again["count"]) == (denial["denialId"], True, 2)
    await worker.grant(again, "never")
    await worker.said(b"Read-only file system" if backend == "bubblewrap" else b"Permission denied")
    assert not target.exists()
    await worker.end()


@on_both_backends
@requirement("denials/grants:process")
async def test_a_grant_to_the_process_holds_for_everything_below_while_it_runs(
    worker, place, backend
):
    await worker.start(place.sandbox(backend), denialHoldMs=HOLD)
    folder = place.outside / f"folder-{backend}"
    await worker.ask("mkdir", folder)
    denial = await worker.denied()
    assert await worker.grant(denial, "process") == {"released": 1, "inPlace": True}
    await worker.said(b"done")
    for words in (
        ("write", folder / "one"),
        ("rename", folder / "one", folder / "two"),
        ("rename", folder / "two", place.workspace / "two"),
        ("rename", place.workspace / "two", folder / "three"),
        ("unlink", folder / "three"),
        ("rmdir", folder),
        ("mkdir", folder),
    ):
        await worker.ask(*words)
        await worker.said(b"done")
    assert folder.is_dir()
    await worker.ask("symlink", "x", f"{folder}-beside")
    denial = await worker.denied()
    assert (denial["operation"], denial["held"]) == ("symlink", True)
    await worker.grant(denial, "never")
    await worker.end()


@needs_bubblewrap
@requirement("denials/grants:in-place")
async def test_links_modes_lengths_and_times_are_changed_in_place(worker, place):
    await worker.start(place.sandbox("bubblewrap"), denialHoldMs=HOLD)
    folder = place.outside / "changed"
    await worker.ask("mkdir", folder)
    await worker.grant(await worker.denied(), "process")
    await worker.said(b"done")
    file, link, other = folder / "file", folder / "link", folder / "other"
    for words in (
        ("write", file),
        ("chmod", file),
        ("truncate", file),
        ("touch", file),
        ("symlink", "some text", link),
        ("link", file, other),
    ):
        await worker.ask(*(str(word).replace(" ", "-") for word in words))
        await worker.said(b"done")
    found = file.stat()
    assert (found.st_mode & 0o7777, found.st_size, found.st_nlink) == (0o640, 1, 2)
    assert (found.st_atime, found.st_mtime, found.st_uid) == (1, 2, place.uid)
    assert os.readlink(link) == "some-text"
    await worker.ask("touch-now", file)
    await worker.said(b"done")
    assert file.stat().st_mtime > 2
    # A link in the place of the file leads nowhere.
    await worker.ask("chmod", link)
    await worker.said(b"No such file or directory")
    await worker.end()


@needs_bubblewrap
@requirement("denials/grants:in-place")
async def test_what_would_give_more_than_the_path_stays_refused(worker, place):
    await worker.start(place.sandbox("bubblewrap"), denialHoldMs=HOLD)
    folder = place.outside / "narrow"
    await worker.ask("mkdir", folder)
    await worker.grant(await worker.denied(), "process")
    await worker.said(b"done")
    await worker.ask("write", folder / "file")
    await worker.said(b"done")
    # A second name would make a file writable that is not.
    await worker.ask("link", place.outside / "secret", folder / "secret")
    assert (await worker.denied()).get("held") is None
    await worker.said(b"Read-only file system")
    # A file with such a mode would give rights to other programs.
    await worker.ask("chmod", folder / "file", "4755")
    assert (await worker.denied()).get("held") is None
    await worker.said(b"Read-only file system")
    assert not (folder / "secret").exists()
    assert (folder / "file").stat().st_mode & 0o7000 == 0
    await worker.end()


@on_both_backends
@requirement("denials/grants:sockets")
async def test_a_held_connection_to_a_unix_socket_goes_on(worker, place, backend):
    await worker.start(place.sandbox(backend), denialHoldMs=HOLD)
    path = place.outside / "listening"
    for scope, spelling in (("once", path), ("process", place.workspace / "out/listening")):
        await worker.ask("connect", spelling)
        denial = await worker.denied()
        assert (denial["kind"], denial["target"]) == ("socket", f"unix:{path}")
        assert (denial["grant"], denial["held"]) == (f"socket=unix:{path}", True)
        assert (await worker.grant(denial, scope))["released"] == 1
        answer(place, scope)
        await worker.said(f"{scope}\ndone".encode())
    # From now on it is not asked about.
    await worker.ask("connect", path)
    answer(place, "again")
    await worker.said(b"again\ndone")
    # A datagram socket could send everywhere, so only a start with a network has one.
    await worker.ask("datagram")
    denial = await worker.denied()
    assert denial["grant"] == "network=on" and "held" not in denial
    await worker.said(b"Operation not permitted")
    await worker.end()


@on_both_backends
@requirement("denials/grants:sockets")
async def test_a_connection_that_is_not_granted_is_refused(worker, place, backend):
    await worker.start(place.sandbox(backend), denialHoldMs=HOLD)
    await worker.ask("connect", place.outside / "listening")
    await worker.grant(await worker.denied(), "never")
    await worker.said(b"Operation not permitted")
    place.listener.setblocking(False)
    try:
        with pytest.raises(BlockingIOError):
            place.listener.accept()
    finally:
        place.listener.setblocking(True)
    await worker.end()


def answer(place: Place, text: str) -> None:
    """Accept a connection of the command, and send *text*."""
    place.listener.settimeout(PATIENCE)
    connection, _ = place.listener.accept()
    with connection:
        connection.sendall(text.encode())


@needs_bubblewrap
@requirement("denials/grants:process")
async def test_a_protected_name_below_a_grant_stays_closed(worker, place):
    folder = place.outside / "repository"
    await worker.start(place.sandbox("bubblewrap"), denialHoldMs=HOLD)
    await worker.ask("mkdir", folder)
    await worker.grant(await worker.denied(), "process")
    await worker.said(b"done")
    (folder / ".git").mkdir()
    place.own_all()
    await worker.ask("write", folder / "new")
    await worker.said(b"done")
    await worker.ask("write", folder / ".git" / "config")
    denial = await worker.denied()
    assert ("grant" in denial, denial.get("held")) == (False, None)
    await worker.said(b"Read-only file system")
    await worker.end()


@needs_bubblewrap
@requirement("denials/grants:deadline")
async def test_a_held_open_is_refused_when_its_time_is_over(worker, place):
    await worker.start(place.sandbox("bubblewrap"), denialHoldMs=50)
    await worker.ask("write", place.outside / "late")
    denial = await worker.denied()
    await worker.said(b"Read-only file system")
    error = await worker.wire.error("process/grant", worker.params(denial, "once"))
    assert error["message"].startswith(f"no call waits for `write={place.outside}/late`")
    await worker.end()


@needs_bubblewrap
@requirement("denials/grants:signals")
async def test_a_signal_reaches_a_process_whose_call_is_held(worker, place):
    await worker.start(place.sandbox("bubblewrap"), denialHoldMs=HOLD)
    await worker.ask("write", place.outside / "interrupted")
    assert (await worker.denied())["held"]
    await worker.wire.call("process/signal", {"processId": "p", "signal": "interrupt"})
    done = Finished(await worker.wire.events_until_closed("p"))
    assert b"KeyboardInterrupt" in done.stderr


@needs_bubblewrap
@requirement("denials/grants:signals")
async def test_a_signal_that_is_ignored_ends_the_wait_as_well(worker, place):
    argv = ["sh", "-c", f"trap '' INT; echo up; : > {place.outside}/x || echo refused; echo done"]
    await worker.wire.start(
        "i", argv, sandbox=place.sandbox("bubblewrap"), denials=True, denialHoldMs=600_000
    )
    await worker.wire.event("i", "process/denied")
    await worker.wire.call("process/signal", {"processId": "i", "signal": "interrupt"})
    done = Finished(await worker.wire.events_until_closed("i"))
    assert done.exit_code == 2 and b"up\n" in done.stdout


@needs_bubblewrap
@requirement("denials/grants:session")
async def test_a_grant_to_the_session_holds_for_what_is_started_later(worker, place):
    await worker.start(place.sandbox("bubblewrap"))
    await worker.ask("write", place.outside / "old")
    denial = await worker.denied()
    assert "held" not in denial
    assert await worker.grant(denial, "session") == {"released": 0, "inPlace": True}
    await worker.end()
    # Without a supervisor the policy itself is wider.
    other = Worker(worker.wire, "other")
    await other.start(place.sandbox("bubblewrap"), denials=False)
    await other.ask("write", place.outside / "old")
    await other.said(b"done")
    await other.ask("write", place.outside / "secret")
    await other.said(b"Read-only file system")
    await other.end()


@needs_bubblewrap
@requirement("denials/grants:restart")
async def test_the_same_id_is_started_again_under_a_wider_sandbox(worker, place):
    await worker.start(place.sandbox("bubblewrap"))
    await worker.ask("chmod", place.outside / "old")
    denial = await worker.denied()
    await worker.said(b"Read-only file system")
    await worker.restart(denial)
    await worker.wire.event("p", "process/closed")
    await worker.wire.output_until("p", b"ready")
    await worker.ask("chmod", place.outside / "old")
    await worker.said(b"done")
    # The second time it has ended before, and the first grant was for the first process alone.
    await worker.ask("chmod", place.outside / "secret")
    denial = await worker.denied()
    await worker.end()
    await worker.restart(denial)
    await worker.wire.output_until("p", b"ready")
    await worker.ask("chmod", place.outside / "secret")
    await worker.said(b"done")
    await worker.ask("chmod", place.outside / "old")
    assert (await worker.denied())["target"] == f"{place.outside}/old"
    await worker.end()


MAKES_SOCKETS = """
import socket
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for family in (socket.AF_INET, socket.AF_UNIX):
        try:
            socket.socket(family, kind).close()
        except OSError as exc:
            print(exc.strerror)
print("ready", flush=True)
"""


@on_both_backends
@requirement("denials/grants:network")
async def test_a_process_is_started_again_with_a_network(wire, place, backend):
    argv = ["python3", "-I", "-S", "-c", MAKES_SOCKETS]
    await wire.start("n", argv, sandbox=place.sandbox(backend), denials=True)
    done = Finished(await wire.events_until_closed("n"))
    assert b"Operation not permitted" in done.stdout
    answer = await wire.call("process/denials", {"processId": "n"})
    assert {denial.get("grant") for denial in answer["denials"]} == {"network=on"}
    grant = {"processId": "n", "grant": "network=on"}
    for scope in ("once", "process"):
        error = await wire.error("process/grant", {**grant, "scope": scope})
        assert "when it starts" in error["message"]
    await wire.call("process/grant", {**grant, "scope": "process", "restart": True})
    done = Finished(await wire.events_until_closed("n"))
    assert done.stdout == b"ready\n"
    # Another process is as before, until the session has the grant; a start may bring it along.
    await wire.start("m", argv, sandbox=place.sandbox(backend), denials=True)
    assert b"not permitted" in Finished(await wire.events_until_closed("m")).stdout
    await wire.start("o", argv, sandbox=place.sandbox(backend), granted=["network=on"])
    assert Finished(await wire.events_until_closed("o")).stdout == b"ready\n"


@needs_bubblewrap
@requirement("denials/grants:reads")
async def test_a_closed_file_can_be_granted_to_a_reader(worker, place):
    secret = place.outside / "secret"
    sandbox = place.sandbox("bubblewrap", at(secret, "deny"))
    await worker.start(sandbox, denialHoldMs=HOLD)
    await worker.ask("read", secret)
    denial = await worker.denied()
    assert denial["grant"] == f"read={secret}"
    await worker.grant(denial, "process")
    await worker.said(b"old\ndone")
    await worker.ask("write", secret)
    assert (await worker.denied())["grant"] == f"write={secret}"
    await worker.wire.call("process/terminate", {"processId": "p"})
    await worker.wire.events_until_closed("p")


@on_both_backends
@requirement("denials/grants:session")
async def test_a_link_in_place_of_what_was_granted_opens_nothing_to_later_commands(
    worker, place, backend
):
    file, other = place.outside / f"link-{backend}", place.outside / f"other-{backend}"
    other.mkdir()
    os.chown(other, place.uid, place.gid)
    sandbox = place.sandbox(backend)
    await worker.start(sandbox, denialHoldMs=HOLD)
    await worker.ask("write", file)
    await worker.grant(await worker.denied(), "session")
    await worker.said(b"done")
    for words in (("unlink", file), ("symlink", other, file)):
        await worker.ask(*words)
        await worker.said(b"done")
    await worker.end()
    later = Worker(worker.wire, "later")
    await later.start(sandbox)
    for path in (other / "new", file / "new"):
        await later.ask("write", path)
        refused = b"Read-only file system" if backend == "bubblewrap" else b"Permission denied"
        await later.said(refused)
    assert not (other / "new").exists()
    await later.end()


@needs_bubblewrap
@requirement("denials/grants:process")
async def test_a_link_in_a_granted_directory_hides_nothing_from_the_records(worker, place):
    secret, folder = place.outside / "secret", place.outside / "linked"
    await worker.start(place.sandbox("bubblewrap", at(secret, "deny")))
    await worker.ask("mkdir", folder)
    await worker.said(b"Read-only file system")
    await worker.grant(await worker.denied(), "process")
    link, below = folder / "link", folder / "below" / "secret"
    for words, answer in (
        (("mkdir", folder), b"done"),
        (("read", link), b"No such file or directory"),
        (("read", below), b"No such file or directory"),
        (("symlink", secret, link), b"done"),
        (("symlink", place.outside, folder / "below"), b"done"),
        (("read", link), b"Permission denied"),
        (("read", below), b"Permission denied"),
    ):
        await worker.ask(*words)
        await worker.said(answer)
    listed = (await worker.wire.call("process/denials", {"processId": "p"}))["denials"]
    found = [(each["target"], each["count"]) for each in listed if each["kind"] == "read"]
    assert found == [(str(secret), 2)]
    await worker.end()


@needs_bubblewrap
@requirement("denials/grants:only-records")
async def test_only_what_a_record_offers_can_be_granted(worker, place):
    await worker.start(place.sandbox("bubblewrap"))
    await worker.ask("write", place.workspace / ".git" / "config")
    denial = await worker.denied()
    assert "grant" not in denial
    for grant in (f"write={denial['target']}", "write=/", "write=/etc/passwd", ""):
        params = {"processId": "p", "grant": grant, "scope": "session"}
        error = await worker.wire.error("process/grant", params)
        assert error["message"] == f"no record of this process can be granted as `{grant}`"
    await worker.end()


@on_both_backends
@requirement("denials/supervisor:death-closes")
async def test_the_death_of_the_supervisor_ends_the_command_and_says_so(worker, place, backend):
    supervisor = await started_supervisor(worker, place, backend, report=True)
    os.kill(supervisor, signal.SIGKILL)
    done = Finished(await worker.wire.events_until_closed("p"))
    assert done.exit_code == 128 + signal.SIGKILL
    text = b"exec-server: the supervisor of the sandbox died, so the command was ended\n"
    assert done.stderr == text
    (exited,) = [e["params"] for e in done.events if e["method"] == "process/exited"]
    assert exited["end"]["cause"] == "sandbox"
    assert exited["end"]["evidence"].encode() == text.strip()


@on_both_backends
@requirement("denials/supervisor:ends")
async def test_a_supervisor_ends_with_its_command(worker, place, backend):
    supervisor = await started_supervisor(worker, place, backend)
    await worker.end()
    async with asyncio.timeout(PATIENCE):
        while Path(f"/proc/{supervisor}/exe").exists():
            await worker.wire.call("process/denials", {"processId": "p"})
    assert supervisor not in supervisors(place)


@needs_landlock
@requirement("denials/supervisor:ends-with-keeper")
async def test_a_supervisor_ends_with_its_keeper():
    """Server and keeper are killed at once, so that no one else can end it."""
    with tempfile.TemporaryDirectory(prefix="denials-") as folder, start_server() as server:
        place = Place(server, Path(folder))
        with place.listener:
            async with Wire(server.url) as wire:
                await wire.initialize()
                worker = Worker(wire)
                supervisor = await started_supervisor(worker, place, "landlock")
                (keeper,) = children(server.pid)
                watched = os.pidfd_open(supervisor)
                try:
                    os.kill(server.pid, signal.SIGSTOP)
                    os.kill(keeper, signal.SIGKILL)
                    ended, _, _ = select.select([watched], [], [], PATIENCE)
                finally:
                    os.close(watched)
                    os.kill(server.pid, signal.SIGCONT)
                assert ended
                await worker.wire.events_until_closed("p")


async def started_supervisor(worker: Worker, place: Place, backend: str, **params: Any) -> int:
    """Start the worker; the pid of its supervisor."""
    before = supervisors(place)
    await worker.start(place.sandbox(backend), **params)
    async with asyncio.timeout(PATIENCE):
        # The guard that has let the command run may be on its way out.
        while len(found := supervisors(place) - before) > 1:
            await worker.wire.call("process/denials", {"processId": "p"})
    (supervisor,) = found
    return supervisor


def supervisors(place: Place) -> set[int]:
    """The children of the keeper that run the keeper's own program; guards, too, until they end."""
    found: set[int] = set()
    for keeper in children(place.server.pid):
        found |= {pid for pid in children(keeper) if command(pid) == command(keeper)}
    return found
