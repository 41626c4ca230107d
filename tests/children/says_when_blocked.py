"""Writes to stdout without end and tells the tether argv[1] when nobody takes it any more.

`blocked` is said after argv[2] seconds without room in the pipe, `running` when there is again.
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
