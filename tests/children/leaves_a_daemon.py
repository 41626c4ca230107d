"""Leaves a daemon behind: it forks twice, leads a session of its own, and holds the tether argv[1].

With a second argument the daemon keeps the output open. The leader ends with status 0 at once.
"""

import os
import signal
import sys

os.open(sys.argv[1], os.O_WRONLY)
for signum in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
reader, writer = os.pipe()
if os.fork():
    os.read(reader, 1)
    print("ready", flush=True)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
if len(sys.argv) < 3:
    for fd in (0, 1, 2):
        os.close(fd)
os.write(writer, b"x")
while True:
    signal.pause()
