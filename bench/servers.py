"""A server under test: started, asked what it costs, stopped with everything it started."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bench import proc
from bench.client import Client, drain, now, unique

_HOST = "127.0.0.1"
# Below the range that the kernel takes for outgoing connections: a client that polls a port of
# that range until a server listens may be connected to itself.
_PORTS = range(7860, 7900)
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0
_POLL_SECONDS = 0.0005
_READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
# After this the reference has started its threads and ours has loaded what it left for later.
_SETTLE_SECONDS = 0.3


class ServerFailed(Exception):
    """The server did not start, or ended on its own."""


class Command(NamedTuple):
    """How to start a server: a command line with {port} in it."""

    name: str
    line: str
    # What to add for a server whose jobs outlive it; empty if it cannot have such jobs.
    state_option: str = ""
    # The workloads in which it takes part; None: all of them.
    workloads: frozenset[str] | None = None

    def takes_part_in(self, workload: str) -> bool:
        return self.workloads is None or workload in self.workloads


class Conditions(NamedTuple):
    """How a server and the client beside it are run."""

    quick_acks: bool = False
    server_cpus: frozenset[int] | None = None
    client_cpus: frozenset[int] | None = None


class Server:
    """``with`` starts it, and ends it however the body ends."""

    # Seconds from its start to the first answered GET /readyz, and to the first `initialize`.
    ready_seconds: float
    initialized_seconds: float
    # When its process was started last.
    launched_at: float

    def __init__(
        self, command: Command, conditions: Conditions, *, state: Path | None = None
    ) -> None:
        """With *state*, a folder that is made and removed, it can have durable jobs."""
        self.name = command.name
        self._line = command.line
        self._state = state
        if state is not None:
            option = command.state_option.replace("{state}", shlex.quote(str(state)))
            self._line = f"{self._line} {option}"
        self._conditions = conditions
        self._process: subprocess.Popen[bytes] | None = None
        self._at_rest: list[proc.Identity] = []

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait for its first answers."""
        self.port = free_port()
        self._home = Path(tempfile.mkdtemp(prefix="bench-"))
        begin = self.launched_at = now()
        self._launch()
        self._wait_listening(begin)
        self.ready_seconds = now() - begin
        client = self.connect()
        self.initialized_seconds = now() - begin
        client.close()
        time.sleep(_SETTLE_SECONDS)
        self._look_at_rest()

    def warm_up(self) -> None:
        """Run one command, so that helpers that are started on demand are there and counted."""
        client = self.connect()
        client.start(unique("w"), ["/bin/true"])
        drain(client)
        client.close()
        time.sleep(_SETTLE_SECONDS)
        self._look_at_rest()

    def connect(self, *, receive_buffer: int | None = None) -> Client:
        """A connection after its handshake."""
        client = Client(
            _HOST,
            self.port,
            receive_buffer=receive_buffer,
            quick_acks=self._conditions.quick_acks,
        )
        client.initialize()
        return client

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        """What the server and its resting helpers have used; not what its commands did."""
        return proc.cpu_seconds(self._at_rest)

    def memory(self) -> proc.Memory:
        return proc.memory(self._at_rest)

    def peak_memory(self) -> int:
        return proc.peak_memory(self._at_rest)

    def kill_and_restart(self) -> None:
        """Kill it and start the next one on the same state; returns when that listens."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.launched_at = now()
        self._launch()
        self._wait_listening(self.launched_at)

    def durable_keeper(self) -> list[proc.Identity]:
        """The process that holds the durable jobs; none before the first job."""
        assert self._state is not None
        try:
            pid = int((self._state / "keeper.lock").read_text())
        except (OSError, ValueError):
            return []
        return proc.family(pid)[:1]

    def stop(self) -> None:
        """End it and whatever it leaves behind; does nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        started = proc.family(process.pid)
        if self._state is not None:
            for keeper in self.durable_keeper():
                started += proc.family(keeper.pid)
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for identity in started:
            proc.kill(identity)
        shutil.rmtree(self._home, ignore_errors=True)
        if self._state is not None:
            shutil.rmtree(self._state, ignore_errors=True)

    def _launch(self) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "RUST_LOG"}
        environment["CODEX_HOME"] = environment["XDG_STATE_HOME"] = str(self._home)
        mine = os.sched_getaffinity(0)
        # The child begins where we are, and so do its first threads.
        os.sched_setaffinity(0, self._conditions.server_cpus or mine)
        try:
            with (self._home / "stderr").open("wb") as stderr:
                self._process = subprocess.Popen(
                    shlex.split(self._line.replace("{port}", str(self.port))),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    # Ctrl-C is for us; we stop the server.
                    start_new_session=True,
                )
        finally:
            os.sched_setaffinity(0, mine)

    def _wait_listening(self, begin: float) -> None:
        while not self._answers():
            if self._process is None or self._process.poll() is not None:
                raise ServerFailed(f"{self.name} ended at once: {self._last_words()}")
            if now() - begin > _START_TIMEOUT:
                raise ServerFailed(f"{self.name} does not listen: {self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            try:
                probe.connect((_HOST, self.port))
                # The first answer is slow under callgrind.
                probe.settimeout(_START_TIMEOUT)
                probe.sendall(_READY)
                return bool(probe.recv(4096))
            except OSError:
                return False

    def _last_words(self) -> str:
        return (self._home / "stderr").read_text(errors="replace").strip()[-400:] or "no message"

    def _look_at_rest(self) -> None:
        assert self._process is not None
        self._at_rest = proc.family(self._process.pid)


def free_port() -> int:
    for port in _PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no port is free from {_PORTS[0]} to {_PORTS[-1]}")
