"""Wait for SIGTERM or SIGHUP and write its name to the tether argv[1]; ignore argv[2:]."""

import os
import signal
import sys


def say(signum: int, frame: object) -> None:
    os.write(tether, f"{signal.Signals(signum).name}\n".encode())
    os._exit(0)


tether = os.open(sys.argv[1], os.O_WRONLY)
for signum in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(signum, say)
for name in sys.argv[2:]:
    signal.signal(signal.Signals[name], signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
