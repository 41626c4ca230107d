"""Write to stdout without end, and tell the tether argv[1] when no more is read.

It writes `blocked` after argv[2] seconds without room in the pipe, and `running` when there is room
again.
"""

import os
import select
import sys

tether = os.open(sys.argv[1], os.O_WRONLY)
patience = float(sys.argv[2])
block = b"x" * 8191 + b"\n"
os.set_blocking(1, False)
while True:
    if not select.select([], [1], [], patience)[1]:
        os.write(tether, b"blocked\n")
        select.select([], [1], [])
        os.write(tether, b"running\n")
    os.write(1, block)
