"""Read no input until SIGUSR1; then read it to its end and print the number of bytes."""

import os
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
total = 0
while data := os.read(0, 1 << 20):
    total += len(data)
print(total, flush=True)
