"""Ignore SIGTERM and SIGHUP together with a tree of every shape; argv[1] is a tether.

It prints the pid of each process once all of them wait, then `ready`.
"""

import os
import signal
import sys


def wait() -> None:
    os.write(announcer, b"%d\n" % os.getpid())
    while True:
        signal.pause()


def fork(*, in_new_session: bool = False, by_a_parent_that_ends: bool = False) -> None:
    pid = os.fork()
    if pid:
        if by_a_parent_that_ends:
            os.waitpid(pid, 0)
        return
    if in_new_session:
        os.setsid()
    if by_a_parent_that_ends and os.fork():
        os._exit(0)
    wait()


os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
reader, announcer = os.pipe()
fork()
fork(in_new_session=True)
fork(by_a_parent_that_ends=True)
fork(in_new_session=True, by_a_parent_that_ends=True)
with os.fdopen(reader) as announced:
    others = [announced.readline().strip() for _ in range(4)]
print(os.getpid(), *others)
print("ready", flush=True)
while True:
    signal.pause()
