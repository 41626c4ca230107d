"""A control group of the server's own, from the service manager of a systemd user session."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.cli.serve.user_scope import (
    ScopeFailed,
    Surroundings,
    ask_for_scope,
    enter_own_scope,
    reason_against,
)
from tests.requirements import requirement

MANAGER = Path(__file__).parents[2] / "children" / "answers_as_systemd.py"
SESSION = "/user.slice/user-5.slice/session-2.scope"
needs_bus = pytest.mark.skipif(
    shutil.which("dbus-daemon") is None, reason="dbus-daemon is not installed"
)


class Login(Surroundings):
    """A login of a user whose service manager outlives it, on a machine with systemd."""

    uid = 5

    def __init__(self, place: Path) -> None:
        for name in ("systemd", "hierarchy", "lingering"):
            (place / name).mkdir()
            setattr(self, name, str(place / name))
        self.own_groups = str(place / "groups")
        self.is_kept = True
        self.enter(SESSION)
        (place / "hierarchy/cgroup.controllers").write_text("cpu memory pids\n")

    def enter(self, group: str, members: str = "1 2\n") -> None:
        Path(self.own_groups).write_text(f"1:name=systemd:/\n0::{group}\n")
        folder = Path(f"{self.hierarchy}{group}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(members)

    def is_lingering(self) -> bool:
        return self.is_kept


@pytest.fixture
def login(tmp_path):
    return Login(tmp_path)


@contextlib.contextmanager
def bus(place: Path) -> Iterator[dict[str, str]]:
    """A bus of its own; the variables that lead to it."""
    address = f"unix:path={place}/bus"
    command = ["dbus-daemon", "--session", "--nofork", "--print-address", f"--address={address}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None and daemon.stdout.readline()
            yield {"DBUS_SESSION_BUS_ADDRESS": address}
        finally:
            daemon.kill()


@contextlib.contextmanager
def manager(environ: dict[str, str], how: str, login: Login) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(MANAGER), how, login.own_groups]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    ) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


@needs_bus
@requirement("limits:scope")
def test_a_login_session_gets_a_delegated_scope_with_one_call(login, tmp_path):
    with bus(tmp_path) as environ, manager(environ, "moves", login) as child:
        assert enter_own_scope(environ, login) is None
        assert child.stdout is not None
        asked = json.loads(child.stdout.readline())
    assert asked["member"] == "StartTransientUnit" and asked["mode"] == "fail"
    assert asked["name"].startswith("exec-server-") and asked["name"].endswith(".scope")
    assert asked["Delegate"] is True and asked["PIDs"] == [os.getpid()]
    assert login.group().endswith(asked["name"])


@needs_bus
@requirement("limits:scope")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("refuses", "AccessDenied: no"),
        ("fails", "could not start .*: failed"),
        ("stays", "did not move this process"),
    ],
)
def test_a_manager_that_gives_none_is_quoted_and_the_server_goes_on(login, tmp_path, how, words):
    with bus(tmp_path) as environ, manager(environ, how, login):
        with pytest.raises(ScopeFailed, match=words):
            ask_for_scope(environ, login, patience=60)
        assert login.group() == SESSION


@needs_bus
@requirement("limits:scope")
def test_a_bus_without_a_manager_is_a_reason(login, tmp_path):
    with (
        bus(tmp_path) as environ,
        pytest.raises(ScopeFailed, match=r"ServiceUnknown|NameHasNoOwner"),
    ):
        ask_for_scope(environ, login, patience=60)


@needs_bus
def test_a_manager_that_says_nothing_is_not_waited_for(login, tmp_path):
    with bus(tmp_path) as environ, manager(environ, "silent", login):
        with pytest.raises(ScopeFailed, match=r"answer in 0\.05 s|authenticate|user's bus"):
            ask_for_scope(environ, login, patience=0.05)


def test_a_bus_that_never_answers_is_not_waited_for(login, tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "bus"))
        listener.listen()
        with pytest.raises(ScopeFailed):
            ask_for_scope({"XDG_RUNTIME_DIR": str(tmp_path)}, login, patience=0.05)


@contextlib.contextmanager
def impostor(place: Path, said: bytes) -> Iterator[threading.Event]:
    """A bus that lets each caller in and then says *said*; the event tells that the caller left."""
    left = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(60)
                while data := caller.recv(4096):
                    if b"AUTH" in data:
                        caller.sendall(b"OK 1234\r\n")
                    if b"Hello" in data:
                        caller.sendall(said)
                left.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "bus"))
        listener.listen()
        listener.settimeout(60)
        serving = threading.Thread(target=serve)
        serving.start()
        yield left
        serving.join(60)


@requirement("limits:scope")
def test_a_bus_that_is_not_waited_for_any_more_is_left(login, tmp_path):
    with impostor(tmp_path, b"") as left:
        with pytest.raises(ScopeFailed):
            ask_for_scope({"XDG_RUNTIME_DIR": str(tmp_path)}, login, patience=0.5)
        assert left.wait(60)


@requirement("limits:scope")
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "said",
    [
        b"\0" * 64,
        b"\xff" * 64,
        b"l\2\0\1" + b"\xff" * 60,
        b"l\2\0\1\0\0\0\0\1\0\0\0\0\0\0\0",
        b"l\2\0\1\4\0\0\0\1\0\0\0\4\0\0\0\5\1u\0\0\0\0\0abcd",
        b"l\2\0\1\0\0\0\0\1\0\0\0\x08\0\0\0\5\1u\0\1\0\0\0",
    ],
    ids=["zeros", "ones", "sizes", "empty", "cut", "nothing"],
)
def test_a_bus_that_says_nonsense_gives_no_scope(login, tmp_path, said):
    with impostor(tmp_path, said) as left:
        with pytest.raises(ScopeFailed):
            ask_for_scope({"XDG_RUNTIME_DIR": str(tmp_path)}, login, patience=0.5)
        assert left.wait(60)


@requirement("limits:scope")
def test_without_a_bus_nothing_is_tried(login, tmp_path):
    assert reason_against(login, {"XDG_RUNTIME_DIR": str(tmp_path)}) == (
        "the user's bus was not found"
    )


@requirement("limits:scope")
def test_a_server_is_moved_only_where_that_helps_and_harms_nothing(login, tmp_path):
    environ = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
    assert reason_against(login, environ) is None

    login.is_kept = False
    assert "enable-linger" in (reason_against(login, environ) or "")
    login.enter("/user.slice/user-5.slice/user@5.service/app.slice/vte-1.scope")
    assert reason_against(login, environ) is None

    login.enter("/user.slice/user-5.slice/user@5.service/app.slice/mine.service")
    assert "Delegate=yes" in (reason_against(login, environ) or "")

    login.enter(SESSION, members=f"{os.getpid()}\n")
    assert "no other process" in (reason_against(login, environ) or "")

    login.enter(SESSION)
    login.uid = 0
    assert "root" in (reason_against(login, environ) or "")


@requirement("limits:scope")
def test_machines_of_another_kind_are_left_alone(login):
    (Path(login.hierarchy) / "cgroup.controllers").write_text("hugetlb\n")
    assert "no controllers" in (reason_against(login, {}) or "")
    os.rmdir(login.systemd)
    assert "systemd" in (reason_against(login, {}) or "")
