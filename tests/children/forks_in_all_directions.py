"""Become 2 ** argv[2] processes that ignore SIGTERM, half of them in sessions of their own.

It prints `ready` before it begins. All processes hold the tether argv[1].
"""

import os
import signal
import sys

os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print("ready", flush=True)
for generation in range(int(sys.argv[2])):
    if os.fork() == 0 and generation % 2:
        os.setsid()
while True:
    signal.pause()
