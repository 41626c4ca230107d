"""Run the command argv[1:] with a low limit, odd signals and stray descriptors."""

import os
import resource
import signal
import sys

for name in ("SIGHUP", "SIGPIPE", "SIGINT", "SIGUSR1", "SIGCHLD"):
    signal.signal(signal.Signals[name], signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGUSR2, signal.SIGALRM])
for fd in (7, 8, 9):
    os.dup2(2, fd, inheritable=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (777, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.execv(sys.argv[1], sys.argv[1:])
