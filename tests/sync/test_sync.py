"""The client without an event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from exec_server import sync
from exec_server.errors import CommandTimeout, ConnectError, ConnectionClosed, NotFound
from exec_server.sync.portal import Portal
from tests.requirements import requirement
from tests.support.servers import OURS, ServerProcess, start_server

PATIENCE = 60


@pytest.fixture(scope="module")
def running() -> Iterator[ServerProcess]:
    with start_server() as process:
        yield process


@pytest.fixture
def box(running: ServerProcess) -> Iterator[sync.ExecServerClient]:
    """A client whose thread is gone when the test is over."""
    before = set(threading.enumerate())
    with sync.connect(running.url) as connected:
        yield connected
    assert set(threading.enumerate()) <= before


@requirement("sync/use")
def test_a_command_is_run(box):
    done = box.run(["sh", "-c", "cat; exit 3"], input=b"word")
    assert (done.returncode, done.stdout) == (3, b"word")
    assert box.environment_status() == "ready" and box.is_connected and box.concurrency > 1


@requirement("sync/use")
def test_a_timeout_keeps_what_was_said(box):
    with pytest.raises(CommandTimeout) as caught:
        box.run(["sh", "-c", "echo so far; exec sleep 60"], timeout=0.3)
    assert caught.value.stdout == b"so far\n"


@requirement("sync/use")
def test_a_process_is_talked_to(box):
    process = box.start(["sh", "-c", "echo ready; read x; echo got $x"], stdin=True)
    assert next(process).data == b"ready\n"
    process.write(b"word\n")
    assert b"".join(process.stdout) == b"got word\n"
    assert process.wait() == 0 and process.returncode == 0
    assert process.process_id in repr(process)


@requirement("sync/use")
def test_events_come_to_an_end(box):
    process = box.start(["echo", "hi"])
    kinds = [type(event).__name__ for event in process.events()]
    assert sorted(kinds[:-1]) == ["Exited", "OutputChunk"] and kinds[-1] == "Closed"


@requirement("sync/use")
def test_a_stream_of_events_can_be_left(box):
    process = box.start(["sh", "-c", "echo one; exec sleep 60"])
    for event in process.events():
        assert event.data == b"one\n"
        break
    assert process.terminate()


@requirement("sync/end")
@pytest.mark.parametrize("is_locked", [False, True])
def test_an_iterator_may_be_dropped_in_the_thread_of_the_loop(is_locked):
    portal = Portal()
    ended = threading.Event()

    async def numbers():
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            ended.set()

    held = [portal.iterate(numbers())]
    assert next(held[0]) == 1
    if is_locked:
        # The collector of garbage may run while work is being handed over.
        with portal._lock:
            held.clear()
    else:
        portal.run(held.clear)
    assert ended.wait(PATIENCE)
    portal.close()


@requirement("sync/end")
def test_an_iterator_that_is_dropped_after_the_connection_was_lost_is_quiet(caplog):
    portal = Portal()
    ended = threading.Event()

    async def numbers():
        try:
            while True:
                yield 1
        finally:
            ended.set()
            raise ConnectionClosed("lost", may_have_run=False)

    assert next(portal.iterate(numbers())) == 1
    assert ended.wait(PATIENCE)
    portal.close()
    gc.collect()
    assert caplog.records == []


@requirement("sync/use", "window/unread", "window/one-by-one")
def test_a_handle_may_be_dropped_in_any_thread(box, tmp_path):
    # More than the window and all pipes hold.
    script = f"head -c 16777216 /dev/zero; echo > {tmp_path}/done"
    process = box.start(["sh", "-c", script])
    assert box.run(["echo", "hi"]).stdout == b"hi\n"
    assert not (tmp_path / "done").exists()
    del process
    box.run(["sh", "-c", f"until test -e {tmp_path}/done; do sleep 0.01; done"], timeout=PATIENCE)


@requirement("sync/use")
def test_files_and_paths(box, tmp_path):
    box.fs.write_text(tmp_path / "file", "content")
    path = box.fs.path(str(tmp_path)) / "file"
    assert path.read_text() == "content" and path.name == "file" and path.parent.is_dir()
    assert box.fs.read_bytes(path) == b"content"
    assert list(path.parent.iterdir()) == [path] == list(path.parent.glob("*"))
    assert path.rename("other").name == "other"
    assert not path.exists() and str(path).endswith("/file")
    with pytest.raises(NotFound):
        path.read_bytes()


@requirement("sync/use")
def test_streams(box, tmp_path):
    with box.fs.write_stream(tmp_path / "file") as stream:
        for _ in range(3):
            stream.write(b"x" * 1_000_000)
    with box.fs.read_stream(tmp_path / "file") as blocks:
        assert sum(map(len, blocks)) == 3_000_000
    assert len(box.fs.read_stream(tmp_path / "file").read()) == 3_000_000


@requirement("sync/use")
def test_a_missing_file_is_waited_for(box, tmp_path):
    watch = box.fs.watch_missing([box.fs.path(str(tmp_path / "new"))])
    assert watch is not None
    (tmp_path / "new").touch()
    watch.changed()
    assert box.fs.watch_missing([tmp_path / "new"]) is None


@requirement("sync/use")
def test_a_tree_is_copied_with_progress(box, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"content")
    seen: list[object] = []
    box.fs.upload(tmp_path / "tree", tmp_path / "copy", on_progress=seen.append)
    assert (tmp_path / "copy" / "file").read_bytes() == b"content" and seen


@requirement("sync/use")
def test_requests_are_made_from_over_there(box):
    with HTTPServer(("127.0.0.1", 0), Greeter) as target, ThreadPoolExecutor(1) as threads:
        serving = threads.submit(target.serve_forever)
        url = f"http://127.0.0.1:{target.server_port}/"
        try:
            assert box.http.get(url).text == "hello"
            with box.http.stream("GET", url) as response:
                assert response.status == 200 and b"".join(response) == b"hello"
        finally:
            target.shutdown()
        serving.result(PATIENCE)


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: object) -> None:
        """The log is not read."""


@requirement("sync/use")
def test_this_machine_without_a_socket():
    with sync.local() as box:
        assert box.run(["echo", "hi"]).stdout == b"hi\n"


@requirement("sync/use")
def test_environments(running, tmp_path):
    program = " ".join(f'"{word}",' for word in [*OURS[1:], "--listen", "stdio"])
    (tmp_path / "environments.toml").write_text(
        f'[[environments]]\nid = "box"\nurl = "{running.url}"\n'
        f'[[environments]]\nid = "child"\nprogram = "{OURS[0]}"\nargs = [{program}]\n'
    )
    with sync.environments(tmp_path, {}) as manager:
        assert manager.names == ("local", "box", "child") and manager.default == "local"
        for name in manager.names:
            assert manager.client(name).run(["echo", name]).stdout == f"{name}\n".encode()
        assert manager.client("box") == manager.client("box") != manager.client("local")
        with manager.connect("box") as own:
            assert own.session_id != manager.client("box").session_id
        assert manager.status("box").state == "ready"


@requirement("sync/end")
def test_a_server_that_is_not_there_leaves_no_thread():
    before = set(threading.enumerate())
    with pytest.raises(ConnectError), sync.connect("ws://127.0.0.1:1"):
        pass
    assert set(threading.enumerate()) <= before


@requirement("sync/end")
def test_what_is_used_after_the_end_says_so(running):
    with sync.connect(running.url) as box:
        process = box.start(["sleep", "60"])
        box.close()
        box.close()
        with pytest.raises(ConnectionClosed, match="closed"):
            box.run(["true"])
    with pytest.raises(ConnectionClosed, match="closed"):
        process.wait()
    assert process.returncode is None and box.state == "closed"
    box.close()


@requirement("sync/end")
def test_an_exception_leaves_the_block(running):
    with pytest.raises(KeyError), sync.connect(running.url) as box:
        raise KeyError(box.session_id)
    assert box.state == "closed"


@requirement("sync/threads")
def test_many_threads_share_a_client(box):
    with ThreadPoolExecutor(8) as threads:
        outputs = threads.map(lambda n: box.run(["echo", str(n)]).stdout, range(24))
        assert list(outputs) == [f"{n}\n".encode() for n in range(24)]


@requirement("sync/threads")
def test_leaving_the_block_ends_the_waits_of_other_threads(running):
    with ThreadPoolExecutor(1) as threads:
        with sync.connect(running.url) as box:
            process = box.start(["sh", "-c", "echo ready; exec sleep 60"])
            assert next(process).data == b"ready\n"
            waiting = threads.submit(process.wait)
        with pytest.raises(ConnectionClosed):
            waiting.result(PATIENCE)


@requirement("sync/threads")
def test_a_callback_may_look_but_not_wait(running):
    clients: list[sync.ExecServerClient] = []
    faults: list[str] = []

    def on_state(state: str) -> None:
        for client in clients:
            assert client.state == state == "closed"
            with pytest.raises(RuntimeError) as caught:
                client.run(["true"])
            faults.append(str(caught.value))

    with sync.connect(running.url, on_state=on_state) as client:
        clients.append(client)
    assert faults == ["a callback may not wait for what happens in its own thread"]


@requirement("sync/end")
def test_a_portal_is_closed_twice():
    portal = Portal()
    assert portal.run(threading.current_thread) is not threading.current_thread()
    portal.close()
    portal.close()
    assert portal.run(threading.current_thread) is threading.current_thread()


PROGRAM = """
import os, sys
from exec_server import sync

with sync.connect(sys.argv[1]) as box:
    try:
        box.run(["sh", "-c", f"echo $$ > {sys.argv[2]}; exec sleep 60"])
    except KeyboardInterrupt:
        print("interrupted", len(box.list_processes()))
"""


@requirement("sync/interrupt")
@pytest.mark.parametrize("is_handed_over", [True, False])
def test_an_interrupt_while_work_is_handed_over_cancels_it(monkeypatch, is_handed_over):
    portal = Portal()
    begun, cancelled = threading.Event(), threading.Event()
    submit = portal._submit

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupted(callback: Callable[[], None]) -> bool:
        monkeypatch.setattr(portal, "_submit", submit)
        if is_handed_over:
            submit(callback)
            assert begun.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(portal, "_submit", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            portal.wait(work())
        assert cancelled.is_set() == is_handed_over
    finally:
        portal.close()


@requirement("sync/interrupt")
def test_an_interrupt_cancels_what_is_waited_for(running, tmp_path):
    told = tmp_path / "pid"
    os.mkfifo(told)
    command = [sys.executable, "-c", PROGRAM, running.url, str(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        # Opening waits until the command has begun.
        pid = int(told.read_text())
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0 and output.startswith(b"interrupted")
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, "the command runs on"
