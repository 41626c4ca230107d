"""Stop itself; write `SIGTERM` to the tether argv[1] if that signal comes."""

import os
import signal
import sys


def say(signum: int, frame: object) -> None:
    os.write(tether, b"SIGTERM\n")
    os._exit(0)


tether = os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, say)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
os.write(tether, b"continued\n")
while True:
    signal.pause()
