"""What the keeper finds out about ends: the kernel's log, senders of signals, usage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.process import exit_facts, signal_senders
from exec_server.process.kernel_log import KernelLog
from tests.process.test_ends import KNOWS_SENDERS


@pytest.fixture
def log() -> Iterator[tuple[KernelLog, int]]:
    """A log, and the end that the kernel would write to."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    yield KernelLog(reader), writer
    os.close(reader)
    os.close(writer)


def test_the_log_names_who_was_killed_for_memory(log):
    reading, kernel = log
    assert not reading.has_killed(42)
    text = b"3,1,2,-;Memory cgroup out of memory: Killed process 42 (python3) total-vm:221356kB\n"
    os.write(kernel, text)
    assert reading.has_killed(42) and reading.has_killed(42) and not reading.has_killed(4)


def test_what_was_logged_of_an_earlier_process_is_forgotten(log):
    reading, kernel = log
    os.write(kernel, b"3,1,2,-;Out of memory: Killed process 42 (python3) total-vm:221356kB\n")
    reading.forget(42)
    assert not reading.has_killed(42)


@pytest.mark.parametrize(
    "record",
    [
        b"12,1,2,-;Out of memory: Killed process 42 (x) by a program\n",
        b"4,1,2,-;usb 1-1: Product: Out of memory: Killed process 42 (x)\n",
        # A program and a file of it have such names.
        b"6,1,2,-;Out of memory[7]: segfault at 0 ip 0 error 4 in : Killed process 42 (x)[0]\n",
        b"6,1,2,-;Out of memory: [7]: segfault at 0 ip 0 error 4 in : Killed process 42 (x)[0]\n",
    ],
)
def test_a_program_or_a_device_cannot_write_such_a_record(log, record):
    reading, kernel = log
    os.write(kernel, record)
    assert not reading.has_killed(42)


def test_the_usage_of_a_child_is_counted():
    facts = exit_facts.ExitFacts(lambda pid: 0, os.dup)
    started = time.monotonic_ns()
    code = "import time\nwhile time.process_time() < 0.1: pass"
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    facts.begin(child.pid, 0, None, started)
    pid, status, used = os.wait4(child.pid, 0)
    child.returncode = 0
    facts.reaped(pid, status, used)
    told = facts.taken(pid, is_stopping=True)
    assert told is not None and told["cpu"] >= 0.1 and told["max_rss"] > 1 << 20
    assert told["stopped"] is True and told["wall"] > 0
    assert facts.taken(pid, is_stopping=False) is None
    if facts._log is not None:
        os.close(facts._log._fd)


@pytest.mark.skipif(not KNOWS_SENDERS, reason="the kernel does not tell who sends signals")
def test_the_sender_is_found_unless_two_have_sent_the_same():
    senders = signal_senders.opened()
    assert senders is not None
    since = time.monotonic_ns()
    # The shell waits for a signal that it catches, and says so.
    script = "trap 'echo caught' TERM; echo up; while :; do sleep 100 & wait; done"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, process_group=0) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        os.kill(child.pid, signal.SIGTERM)
        assert child.stdout.readline() == b"caught\n"
        assert senders.find(child.pid, signal.SIGTERM, since=since) == (os.getpid(), 0)
        subprocess.run(["kill", "-TERM", str(child.pid)], check=True)
        assert child.stdout.readline() == b"caught\n"
        assert senders.find(child.pid, signal.SIGTERM, since=since) is None
        os.killpg(child.pid, signal.SIGKILL)
    assert senders.find(child.pid, signal.SIGKILL, since=since) == (os.getpid(), 0)
    # What was sent to an earlier process with this number does not count.
    assert senders.find(child.pid, signal.SIGKILL, since=time.monotonic_ns()) is None


@pytest.mark.skipif(not KNOWS_SENDERS, reason="the kernel does not tell who sends signals")
def test_nothing_is_left_on_the_host():
    """No mount, no instance and no descriptor: only memory of this process."""
    before = set(os.listdir("/proc/self/fd")), Path("/proc/self/mounts").read_text()
    assert signal_senders.opened() is not None
    assert (set(os.listdir("/proc/self/fd")), Path("/proc/self/mounts").read_text()) == before


@pytest.mark.skipif(not KNOWS_SENDERS, reason="the kernel does not tell who sends signals")
def test_the_family_of_a_process_that_has_ended_is_known():
    senders = signal_senders.opened()
    assert senders is not None
    script = "sh -c 'echo $$; sh -c \"echo \\$\\$\"; true'; true"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        middle, last = (int(line) for line in child.stdout.read().split())
    assert senders.ancestors(last)[:3] == [last, middle, child.pid]
    assert os.getpid() in senders.ancestors(last)
