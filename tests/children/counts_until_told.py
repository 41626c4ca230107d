"""Print counted lines on stdout and stderr until the file STOP exists; then exit with STATUS.

    counts_until_told.py MARK STOP STATUS

MARK gets a line at the start. The last line of each stream says how many came before it.
"""

import os
import random
import sys
import time

mark, stop, status = sys.argv[1:]
with open(mark, "ab") as file:
    file.write(b"runs\n")
chance = random.Random(os.getpid())
counts = {1: 0, 2: 0}
while not os.path.exists(stop):
    fd = chance.choice((1, 1, 2))
    burst = chance.choice((1, 1, 1, 20, 300))
    first = counts[fd]
    os.write(fd, b"".join(b"%d:%08d\n" % (fd, n) for n in range(first, first + burst)))
    counts[fd] += burst
    time.sleep(chance.random() * 0.01)
for fd, count in counts.items():
    os.write(fd, b"%d:total %d\n" % (fd, count))
sys.exit(int(status))
