"""The keeper alone: how it starts programs, which starts fail, and that it leaks nothing."""

from __future__ import annotations

import errno
import marshal
import os
import resource
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.process.keeper_command import keeper_command
from exec_server.process.keeping.kept_descriptors import LEFT_FOR_STARTS
from exec_server.process.keeping.process_trees import below, parents_first, processes
from exec_server.process.keeping.program_launch import Entries
from tests.requirements import requirement
from tests.support.children import Description, child
from tests.support.leaks import children, open_descriptors
from tests.support.tether import Tether

PATH = b"/usr/local/bin:/usr/bin:/bin"
PATIENCE = 60.0
SIZE = (24, 80)


class KeeperProcess:
    """A keeper process, and the messages to and from it."""

    def __init__(
        self, *, grace: float = 0.2, descriptors: int = 0, hard_limit: int | None = None
    ) -> None:
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(PATIENCE)
        argv = keeper_command("process.keeper", str(grace), str(descriptors))
        if hard_limit is not None:
            argv = ["/bin/sh", "-c", f'ulimit -n {hard_limit}; exec "$@"', "sh", *argv]
        with theirs:
            self.process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                start_new_session=True,
            )

    def close(self) -> None:
        self.sock.close()
        self.process.communicate(timeout=PATIENCE)

    def send(self, *message: Any) -> None:
        data = marshal.dumps(message)
        self.sock.sendall(len(data).to_bytes(4, "big") + data)

    def receive(self) -> tuple[Any, ...]:
        """The next message; its descriptors take the place of their number."""
        data, fds = b"", []
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            # The message is read byte by byte, so that nothing of the next one is taken.
            more, new, _, _ = socket.recv_fds(self.sock, 1, 3)
            assert more, "the keeper is gone"
            data += more
            fds += new
        message: tuple[Any, ...] = marshal.loads(data[4:])
        if message[0] == "spawned":
            assert message[3] == len(fds)
            return (*message[:3], fds)
        return message

    def spawn(self, argv: list[Any], **options: Any) -> tuple[Any, ...]:
        words = [os.fsencode(word) for word in argv]
        program = options.get("program", words[0] if words else b"")
        self.send(
            "spawn",
            1,
            program,
            words,
            options.get("env", {b"PATH": PATH}),
            options.get("cwd", b"/tmp"),
            options.get("size"),
            options.get("wants_stdin", False),
        )
        return self.receive()

    def start(self, argv: list[Any], **options: Any) -> tuple[int, list[int]]:
        answer = self.spawn(argv, **options)
        assert answer[0] == "spawned", answer
        return answer[2], answer[3]

    def run(self, argv: list[Any], **options: Any) -> tuple[bytes, int]:
        """The output of a program, and its wait status."""
        pid, fds = self.start(argv, **options)
        output = read_to_end(fds[0])
        for fd in fds:
            os.close(fd)
        kind, ended, status = self.receive()
        assert (kind, ended) == ("exited", pid)
        return output, status


@pytest.fixture
def kept() -> Iterator[KeeperProcess]:
    running = KeeperProcess()
    yield running
    running.close()


def read_to_end(fd: int) -> bytes:
    output = b""
    while True:
        assert select.select([fd], [], [], PATIENCE)[0], f"no end after {output!r}"
        try:
            data = os.read(fd, 65536)
        except OSError as exc:
            assert exc.errno == errno.EIO
            return output
        if not data:
            return output
        output += data


def read_line(fd: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([fd], [], [], PATIENCE)[0], f"no line after {line!r}"
        line += os.read(fd, 1)
    return line


# What a child gets.

ODD_ENVIRONMENTS: dict[str, dict[bytes, bytes]] = {
    "plain": {b"A": b"1", b"B": b""},
    "no variable": {},
    "equals sign in a name": {b"A": b"1", b"A=B": b"2", b"=C": b"3", b"D=": b"4"},
    "no name": {b"": b"x", b"A": b"1"},
    "no name and an equals sign": {b"": b"x=y", b"=A": b"1", b"A=B": b"2"},
    "not UTF-8": {b"\xff": b"\xfe"},
}


@requirement("spawn:odd-names")
@pytest.mark.parametrize("size", [None, SIZE], ids=["pipes", "tty"])
@pytest.mark.parametrize("env", ODD_ENVIRONMENTS.values(), ids=ODD_ENVIRONMENTS)
def test_any_name_reaches_the_child(kept, env, size):
    output, status = kept.run(["/bin/cat", "/proc/self/environ"], env=env, size=size)
    expected = b"".join(b"%b=%b\0" % entry for entry in env.items())
    assert (output, status) == (expected, 0)


@given(st.dictionaries(st.binary(max_size=4), st.binary(max_size=4)), st.booleans())
def test_the_entries_of_an_environment_stay_the_same(env, may_be_nameless):
    if not may_be_nameless:
        env.pop(b"", None)
    entries = Entries(env, search_from=0 if may_be_nameless else 1)
    names = entries.keys()
    assert [b"%b=%b" % pair for pair in entries.items()] == [b"%b=%b" % p for p in env.items()]
    assert list(zip(names, entries.values(), strict=True)) == entries.items()
    assert len(entries) == len(env)
    # `posix_spawn` and `Popen` demand this of a name.
    assert all(b"=" not in name if may_be_nameless else b"=" not in name[1:] for name in names)
    assert may_be_nameless or all(names)


@requirement("spawn:empty-arg0")
@pytest.mark.parametrize("size", [None, SIZE], ids=["pipes", "tty"])
def test_an_empty_arg0_is_honoured(kept, size):
    output, _ = kept.run(["", "/proc/self/cmdline"], program=b"/bin/cat", size=size)
    assert output == b"\0/proc/self/cmdline\0"


@requirement("spawn:clean-start", "spawn:descriptor-limit")
@pytest.mark.parametrize("env", [{b"PATH": PATH}, {b"": b"", b"PATH": PATH}], ids=["usual", "fork"])
@pytest.mark.parametrize("size", [None, SIZE], ids=["pipes", "tty"])
def test_a_child_starts_with_nothing_of_ours(size, env):
    kept = KeeperProcess(descriptors=321)
    output, _ = kept.run(child("describes_itself.sh"), size=size, env=env)
    kept.close()
    facts = Description(output)
    assert facts.parent == kept.process.pid
    assert facts.pid == facts.group == facts.session
    assert facts.foreground_group == (facts.pid if size else None)
    assert (facts.ignored, facts.blocked) == (set(), set())
    assert facts.descriptors == [0, 1, 2]
    assert facts.max_descriptors == 321


def test_without_a_limit_of_its_own_a_child_has_the_keepers(kept):
    output, _ = kept.run(child("describes_itself.sh"))
    assert Description(output).max_descriptors == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_terminal_has_the_size_asked_for_and_comes_twice(kept):
    pid, (master, copy) = kept.start(["cat"], size=(7, 11))
    assert os.get_terminal_size(master) == (11, 7)
    os.write(copy, b"hello\n\x04")
    assert read_to_end(master) == b"hello\r\nhello\r\n"
    assert kept.receive() == ("exited", pid, 0)
    os.close(master)
    os.close(copy)


def test_stdin_is_empty_unless_it_is_asked_for(kept):
    assert kept.run(["cat"]) == (b"", 0)
    pid, (out, err, stdin) = kept.start(["cat"], wants_stdin=True)
    os.write(stdin, b"hello")
    os.close(stdin)
    assert read_to_end(out) == b"hello"
    assert kept.receive() == ("exited", pid, 0)
    os.close(out)
    os.close(err)


# Finding the program.


@pytest.fixture
def program(tmp_path: Path):
    def make(name: str, text: str, *, mode: int = 0o755) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    return make


def test_a_bare_name_is_searched_in_the_childs_path(kept, program, tmp_path):
    program("a/tool", "#!/bin/sh\necho first\n", mode=0o644)
    program("b/tool", "#!/bin/sh\necho second\n")
    path = os.fsencode(f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b")
    assert kept.run(["tool"], env={b"PATH": path})[0] == b"second\n"
    # Relative folders, also the empty one, are relative to the working directory.
    cwd = os.fsencode(tmp_path / "b")
    assert kept.run(["tool"], env={b"PATH": b":/bin"}, cwd=cwd)[0] == b"second\n"
    assert kept.run(["../b/tool"], env={}, cwd=cwd)[0] == b"second\n"


def test_without_a_path_the_usual_folders_are_searched(kept):
    assert kept.run(["true"], env={}) == (b"", 0)


@requirement("spawn:refusals")
@pytest.mark.parametrize("env", [{b"PATH": PATH}, {b"": b"", b"PATH": PATH}], ids=["usual", "fork"])
@pytest.mark.parametrize("size", [None, SIZE], ids=["pipes", "tty"])
def test_what_cannot_start_is_refused_in_the_systems_words(kept, program, tmp_path, size, env):
    plain = program("plain", "echo no shebang\n")
    locked = program("locked/tool", "#!/bin/sh\n", mode=0o644)
    assert kept.run(["true"]) == (b"", 0)
    before = open_descriptors(kept.process.pid)

    def refusal(argv: list[Any], **options: Any) -> int:
        kind, token, number, text, part = kept.spawn(argv, **{"size": size, "env": env, **options})
        assert (kind, token, text) == ("failed", 1, os.strerror(number))
        assert part == ("cwd" if "cwd" in options else "program")
        return int(number)

    assert refusal(["no-such-program"]) == errno.ENOENT
    assert refusal([""], program=b"") == errno.ENOENT
    assert refusal(["/no/such/program"]) == errno.ENOENT
    assert refusal([f"{plain}/x"]) == errno.ENOTDIR
    assert refusal([plain]) == errno.ENOEXEC
    assert refusal([locked]) == errno.EACCES
    denied = {**env, b"PATH": os.fsencode(locked.parent)}
    assert refusal(["tool"], env=denied) == errno.EACCES
    assert refusal(["true"], cwd=b"/no/such/folder") == errno.ENOENT
    assert refusal(["true"], cwd=os.fsencode(plain)) == errno.ENOTDIR
    assert refusal(["true", "x" * (1 << 20)]) == errno.E2BIG
    assert kept.run(["true"]) == (b"", 0)
    assert open_descriptors(kept.process.pid) == before
    assert os.readlink(f"/proc/{kept.process.pid}/cwd") == "/"


def test_what_no_system_call_takes_is_refused(kept):
    assert kept.spawn(["true", "a\0b"]) == ("failed", 1, 0, "embedded null byte", "")
    assert kept.run(["true"]) == (b"", 0)


@requirement("spawn:descriptor-limit")
def test_a_keeper_without_room_for_descriptors_says_so():
    kept = KeeperProcess(descriptors=8)
    opened = len(open_descriptors(kept.process.pid))
    assert opened <= 6
    kind, _, number, _, part = kept.spawn(["cat"], wants_stdin=True)
    assert (kind, number, part) == ("failed", errno.EMFILE, "")
    kept.close()


# What happens to children.


@requirement("keeper:exits")
def test_an_exit_is_told_with_its_status_and_no_child_is_left_unreaped(kept):
    assert kept.run(["sh", "-c", "exit 7"])[1] == 7 << 8
    assert kept.run(["sh", "-c", "kill -9 $$"])[1] == signal.SIGKILL
    assert children(kept.process.pid) == frozenset()


@requirement("keeper:signals")
def test_a_signal_goes_to_the_whole_group_of_a_leader_that_lives(kept):
    pid, fds = kept.start(["sh", "-c", "sleep 60 & echo ready; wait"])
    assert read_line(fds[0]) == b"ready\n"
    kept.send("signal", pid, int(signal.SIGKILL))
    # The background process held the pipe as well.
    assert read_to_end(fds[0]) == b""
    assert kept.receive() == ("exited", pid, signal.SIGKILL)
    for fd in fds:
        os.close(fd)
    # Neither this pid nor one that was never ours is signalled.
    kept.send("signal", pid, int(signal.SIGKILL))
    kept.send("signal", os.getpid(), int(signal.SIGKILL))
    kept.send("signal", 0, int(signal.SIGKILL))
    assert kept.run(["true"]) == (b"", 0)


@requirement("keeper:exits")
def test_many_starts_at_once_do_not_hold_back_an_exit(kept):
    for _ in range(50):
        kept.send("spawn", 1, b"true", [b"true"], {b"PATH": PATH}, b"/", None, False)
    kinds = []
    for _ in range(100):
        message = kept.receive()
        kinds.append(message[0])
        for fd in message[3] if message[0] == "spawned" else ():
            os.close(fd)
    assert kinds.count("spawned") == kinds.count("exited") == 50
    assert kinds.index("exited") < 50


@requirement("keeper:signals")
def test_the_keeper_itself_outlives_the_signals_of_a_terminal(kept):
    assert kept.run(["true"]) == (b"", 0)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        kept.process.send_signal(signum)
    assert kept.run(["true"]) == (b"", 0)


@requirement("keeper:ends-trees-when-it-fails")
def test_a_keeper_that_fails_leaves_no_process(kept, tmp_path):
    with Tether(tmp_path) as tether:
        _, fds = kept.start(child("stubborn_tree.py", tether.path))
        read_line(fds[0])
        assert tether.is_held
        kept.sock.sendall(b"\0\0\0\x01?")
        _, complaint = kept.process.communicate(timeout=PATIENCE)
        assert b"Traceback" in complaint
        assert kept.process.returncode == 1
        assert not tether.is_held
    for fd in fds:
        os.close(fd)


def test_descendants_are_found_whatever_their_names_are(tmp_path):
    odd = tmp_path / "a) b (c"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as process:
        # `Popen` returns once the program runs under its new name.
        table = processes()
        assert table[process.pid][0] == os.getpid()
        assert process.pid in below({os.getpid()}, table)
        assert os.getpid() not in below({process.pid}, table)
        process.kill()


def send_with(kept: KeeperProcess, fds: list[int], *message: Any) -> None:
    data = marshal.dumps(message)
    socket.send_fds(kept.sock, [len(data).to_bytes(4, "big") + data], fds)


def fenced(fence: tuple[Any, ...], program: bytes = b"/bin/true") -> tuple[Any, ...]:
    return ("spawn", 1, program, [program], {}, b"/", None, False, fence)


@requirement("sandbox/process:nothing-leaks")
def test_descriptors_that_got_lost_start_nothing(kept):
    kept.run(["true"])
    before = open_descriptors(kept.process.pid)
    with open("/dev/null") as null:
        send_with(kept, [null.fileno()], *fenced(("bubblewrap", 2, 2, [], [], 0)))
        assert kept.receive()[:3] == ("failed", 1, errno.EMFILE)
    # The answer to another start comes after all that is left to do for this one.
    kept.run(["true"])
    assert open_descriptors(kept.process.pid) == before
    assert children(kept.process.pid) == set()


@requirement("sandbox/process:nothing-leaks")
def test_a_fence_that_cannot_be_put_up_starts_nothing(kept):
    kept.run(["true"])
    before = open_descriptors(kept.process.pid)
    with open("/dev/null") as null:
        # There is neither a ruleset nor a filter.
        send_with(kept, [null.fileno()], *fenced(("confine", 1, True, b"")))
        assert kept.receive()[0] == "failed"
    kept.run(["true"])
    assert open_descriptors(kept.process.pid) == before
    assert children(kept.process.pid) == set()


@requirement("sandbox/process:nothing-leaks")
def test_only_what_is_behind_a_fence_is_confined(kept):
    allow_everything = (0x06).to_bytes(2, "little") + bytes(2) + (0x7FFF0000).to_bytes(4, "little")
    status = [b"grep", b"-h", b"NoNewPrivs", b"/proc/self/status", b"/proc/thread-self/status"]
    message = ("spawn", 1, b"grep", status, {b"PATH": PATH}, b"/", None, False)
    kept.send(*message, ("confine", 0, False, allow_everything))
    _, _, pid, fds = kept.receive()
    assert read_to_end(fds[0]).split()[1::2] == [b"1", b"1"]
    for fd in fds:
        os.close(fd)
    assert kept.receive() == ("exited", pid, 0)
    assert kept.run([word.decode() for word in status])[0].split()[1::2] == [b"0", b"0"]


# The outputs of live programs are held, so that a crash of the server does not end them.


@requirement("orphans:last-words")
@pytest.mark.parametrize(("size", "count"), [(None, 2), (SIZE, 1)], ids=["pipes", "tty"])
def test_outputs_are_held_until_the_exit_is_reported(kept, size, count):
    kept.run(["true"])
    before = open_descriptors(kept.process.pid)
    pid, fds = kept.start(["cat"], size=size, wants_stdin=size is None)
    # The start is reported before its other descriptors are closed. After this they are.
    kept.run(["true"])
    assert len(open_descriptors(kept.process.pid)) == len(before) + count
    kept.send("signal", pid, int(signal.SIGKILL))
    assert kept.receive()[:2] == ("exited", pid)
    assert open_descriptors(kept.process.pid) == before
    for fd in fds:
        os.close(fd)


@requirement("orphans:last-words")
async def test_a_background_process_meets_a_closed_pipe_after_the_exit(kept, tmp_path):
    """As without a keeper: only the outputs of programs that run are held."""
    os.mkfifo(tmp_path / "go")
    with Tether(tmp_path) as tether:
        script = 'exec 3>"$0"; (read x <"$1"; echo late; echo survived >&3) & echo ready'
        pid, fds = kept.start(["sh", "-c", script, tether.path, tmp_path / "go"])
        assert read_line(fds[0]) == b"ready\n"
        assert kept.receive()[:2] == ("exited", pid)
        for fd in fds:
            os.close(fd)
        (tmp_path / "go").write_text("go\n")
        assert await tether.released() == b""


@requirement("orphans:last-words")
def test_programs_start_although_there_is_no_room_to_hold_their_outputs():
    kept = KeeperProcess(hard_limit=LEFT_FOR_STARTS + 16)
    started = [kept.start(["cat"], wants_stdin=True) for _ in range(40)]
    held = open_descriptors(kept.process.pid)
    assert len(held) < LEFT_FOR_STARTS
    for _, fds in started:
        # `cat` ends when its input does.
        for fd in fds:
            os.close(fd)
    assert {kept.receive()[:2] for _ in started} == {("exited", pid) for pid, _ in started}
    kept.close()


@requirement("orphans:last-words", "spawn:descriptor-limit")
def test_what_is_held_is_above_the_limit_of_children():
    kept = KeeperProcess(descriptors=64)
    started = [kept.start(["cat"], wants_stdin=True) for _ in range(100)]
    # Starts need as many descriptors as ever, and get them.
    assert kept.run(["sh", "-c", "ulimit -n"]) == (b"64\n", 0)
    assert min(set(open_descriptors(kept.process.pid)) - set(range(64))) >= 64
    for _, fds in started:
        for fd in fds:
            os.close(fd)
    for _ in started:
        assert kept.receive()[0] == "exited"
    kept.close()


@given(st.data())
def test_no_process_is_killed_before_its_parent(data):
    # Numbers of processes wrap around, so a parent may have the larger one.
    pids = data.draw(st.permutations(range(1, 12)))
    table = {
        pid: (data.draw(st.sampled_from([0, *pids[:place]])), 0) for place, pid in enumerate(pids)
    }
    order = parents_first(table, table)
    assert sorted(order) == sorted(pids)
    for pid in pids:
        assert all(order.index(pid) < order.index(other) for other in below({pid}, table))


def test_a_circle_in_the_table_of_processes_is_no_endless_loop():
    assert sorted(parents_first([1, 2], {1: (2, 0), 2: (1, 0)})) == [1, 2]


def test_a_long_line_of_processes_is_put_in_order_with_little_work():
    class Counted(dict[int, tuple[int, int]]):
        reads = 0

        def __getitem__(self, pid: int) -> tuple[int, int]:
            self.reads += 1
            return super().__getitem__(pid)

    # A command that forks so can have thousands of them, and they must be ended at once.
    table = Counted({pid: (pid - 1, 0) for pid in range(2, 2002)})
    assert parents_first(reversed(table), table) == [*range(2, 2002)]
    assert table.reads <= 2 * len(table)
