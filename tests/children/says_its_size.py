"""Print the size of the terminal, at the start and whenever it changes."""

import fcntl
import signal
import struct
import termios

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
while True:
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    print(*struct.unpack("HHHH", size)[:2], flush=True)
    signal.sigwait([signal.SIGWINCH])
