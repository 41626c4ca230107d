"""A machine that has no more descriptors, threads or memory: errors say so."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import threading
from typing import Any

import pytest
from msgspec import UNSET

import exec_server
from exec_server.rpc import boundary
from exec_server.rpc.peer import Peer
from exec_server.server.sandbox_info import SandboxTrial
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.servers import OURS, start_server
from tests.support.wire import Wire, start_params

DESCRIPTORS = 40
FEW = [
    sys.executable,
    "-c",
    "import os, resource, sys; "
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); "
    "os.execv(sys.argv[1], sys.argv[1:])",
    *OURS,
]
WALK = {"maxDepth": 1, "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": False}
NO_DESCRIPTORS = f"{os.strerror(errno.EMFILE)} (os error {errno.EMFILE})"


def calls(folder: str) -> dict[str, Any]:
    return {
        "fs/readFile": {"path": f"{folder}/file"},
        "fs/writeFile": {"path": f"{folder}/new", "dataBase64": ""},
        "fs/open": {"handleId": "h", "path": f"{folder}/file"},
        "fs/readDirectory": {"path": folder},
        "fs/copy": {
            "sourcePath": f"{folder}/file",
            "destinationPath": f"{folder}/copy",
            "recursive": False,
        },
        "http/request": {"requestId": "r", "method": "GET", "url": "http://127.0.0.1:9/"},
        "process/start": start_params("last", ["true"], pipeStdin=True),
    }


@pytest.mark.one_loop
@requirement("lack:descriptors")
async def test_without_descriptors_every_call_says_so_and_the_server_recovers(tmp_path):
    (tmp_path / "file").touch()
    with start_server(command=FEW) as server:
        async with Wire(server.url) as wire:
            await wire.initialize()
            for number in itertools.count():
                assert number < DESCRIPTORS
                params = start_params(f"p{number}", ["cat"], pipeStdin=True)
                answer = await wire.answer(await wire.request("process/start", params))
                if "error" in answer:
                    assert answer["error"] == {"code": -32603, "message": NO_DESCRIPTORS}
                    break
            # A pipe of the last process may have left room for two more.
            with_files = [
                await wire.answer(
                    await wire.request(
                        "fs/open", {"handleId": str(each), "path": f"file://{tmp_path}/file"}
                    )
                )
                for each in range(4)
            ]
            assert with_files[-1]["error"]["message"] == NO_DESCRIPTORS
            for method, params in calls(f"file://{tmp_path}").items():
                error = await wire.error(method, params)
                prefix = "http/request failed: " if method == "http/request" else ""
                assert error == {"code": -32603, "message": f"{prefix}{NO_DESCRIPTORS}"}, method
            assert (await wire.call("environment/info"))["executorVersion"]
            for each in range(number):
                await wire.call("process/terminate", {"processId": f"p{each}"})
                await wire.event(f"p{each}", "process/closed")
            done = await wire.run("after", ["echo", "served"])
            assert done.stdout == b"served\n"
            assert "sandbox" in await wire.call("environment/info")


@requirement("lack:descriptors", "lack:threads", "lack:memory")
@pytest.mark.parametrize(
    ("fault", "number"),
    [
        (OSError(errno.EMFILE, "x"), errno.EMFILE),
        (OSError(errno.ENFILE, "x"), errno.ENFILE),
        (BlockingIOError(errno.EAGAIN, "x"), errno.EAGAIN),
        (OSError(errno.ENOMEM, "x"), errno.ENOMEM),
        (OSError(errno.ENOSPC, "x"), errno.ENOSPC),
        (MemoryError(), errno.ENOMEM),
        (RuntimeError("can't start new thread"), errno.EAGAIN),
    ],
)
def test_a_lack_is_told_by_its_name(fault, number):
    body = boundary.error_body(fault, method="fs/readFile")
    assert body == (-32603, f"{os.strerror(number)} (os error {number})")


def test_other_faults_are_not_told():
    for fault in (OSError(errno.EBADF, "x"), RuntimeError("a secret"), ValueError("a secret")):
        assert boundary.error_body(fault, method="m") == (-32603, "internal error")


@requirement("lack:threads")
async def test_file_calls_without_threads_fail_and_later_ones_work(monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("content")
    async with serve() as server, Wire(server.url) as wire:
        await wire.initialize()
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name.startswith("exec-server files"):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        walk = {"path": f"file://{tmp_path}", "options": WALK}
        for _ in range(40):
            error = await wire.error("fs/walk", walk)
            assert error["message"] == "Resource temporarily unavailable (os error 11)"
        monkeypatch.undo()
        assert len((await wire.call("fs/walk", walk))["entries"]) == 1


@requirement("lack:memory")
async def test_an_event_for_which_there_is_no_memory_is_read_after_a_resume(monkeypatch):
    send_bulk, count = Peer.send_bulk, itertools.count()

    def sometimes(peer: Peer, before: bytes, data: bytes, after: bytes) -> None:
        if next(count) == 1:
            raise MemoryError
        send_bulk(peer, before, data, after)

    monkeypatch.setattr(Peer, "send_bulk", sometimes)
    async with serve() as server, exec_server.connect(server.url) as client:
        done = await client.run(["seq", "1", "20000"])
        assert done.stdout == b"".join(b"%d\n" % number for number in range(1, 20_001))
    # The second event failed; the rest came by reads.
    assert next(count) >= 2


async def test_a_trial_of_the_sandbox_that_failed_is_made_again(monkeypatch):
    from exec_server.server import sandbox_info

    real, faults = sandbox_info.sandbox_info, iter([OSError(errno.EMFILE, "x"), MemoryError()])

    def fails_twice() -> Any:
        for fault in faults:
            raise fault
        return real()

    monkeypatch.setattr(sandbox_info, "sandbox_info", fails_twice)
    trial = SandboxTrial()
    found = [await trial.found() for _ in range(3)]
    assert found[:2] == [UNSET] * 2 and found[2] is not UNSET
