"""A keeper of many programs: every end is told, with its status, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.process.test_keeper import KeeperProcess, read_to_end
from tests.requirements import requirement
from tests.support.leaks import children, open_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

CROWD = 100
SLEEP = ["/bin/sleep", "1000"]
KINDS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


class Crowd:
    """A keeper with many programs that do nothing."""

    def __init__(self, kept: KeeperProcess) -> None:
        self.kept = kept
        self._fds: list[int] = []
        self.pids = [self._start() for _ in range(CROWD)]

    def _start(self) -> int:
        pid, fds = self.kept.start(SLEEP)
        self._fds += fds
        return pid

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    kept = KeeperProcess()
    found = Crowd(kept)
    yield found
    found.close()
    kept.close()


def ends(kept: KeeperProcess, count: int) -> dict[int, int]:
    told = [kept.receive() for _ in range(count)]
    assert all(kind == "exited" for kind, *_ in told)
    found = {pid: status for _, pid, status in told}
    assert len(found) == count
    return found


@requirement("spawn:ends-in-a-crowd")
def test_each_end_of_a_crowd_is_told_once(crowd):
    killed = {pid: KINDS[number % len(KINDS)] for number, pid in enumerate(crowd.pids)}
    for pid, signum in killed.items():
        os.kill(pid, signum)
    assert ends(crowd.kept, len(killed)) == killed
    assert not children(crowd.kept.process.pid)


@requirement("spawn:ends-in-a-crowd")
def test_the_status_of_a_short_program_beside_a_crowd(crowd):
    for status in (0, 1, 7, 255):
        output, found = crowd.kept.run(["/bin/sh", "-c", f"echo hi; exit {status}"])
        assert (output, os.waitstatus_to_exitcode(found)) == (b"hi\n", status)


@requirement("spawn:ends-in-a-crowd")
def test_orphans_beside_a_crowd_are_reaped(crowd, tmp_path):
    os.mkfifo(fifo := tmp_path / "fifo")
    # The orphan waits for the end of a file, longer than its parent.
    pid, fds = crowd.kept.start(["/bin/sh", "-c", f"cat {fifo} & exit 3"])
    assert ends(crowd.kept, 1) == {pid: 3 << 8}
    fifo.write_bytes(b"hi")
    assert read_to_end(fds[0]) == b"hi"
    for fd in fds:
        os.close(fd)
    # It is reaped without another end.
    for _ in range(100_000):
        crowd.kept.send("echo")
        assert crowd.kept.receive() == ("echo",)
        if children(crowd.kept.process.pid) == set(crowd.pids):
            return
    pytest.fail("the orphan is still there")


@requirement("spawn:ends-in-a-crowd")
def test_a_crowd_leaves_no_descriptor_behind():
    kept = KeeperProcess()
    # An answer comes after everything before it.
    kept.send("echo")
    assert kept.receive() == ("echo",)
    before = open_descriptors(kept.process.pid)
    crowd = Crowd(kept)
    for pid in crowd.pids:
        os.kill(pid, signal.SIGKILL)
    ends(kept, len(crowd.pids))
    crowd.close()
    kept.send("echo")
    assert kept.receive() == ("echo",)
    assert open_descriptors(kept.process.pid) == before
    kept.close()
