"""Say `ready` on a terminal in raw mode and echo what is typed, until an escape; exit with STATUS.

    echoes_a_terminal.py MARK STATUS

MARK gets a line at the start.
"""

import os
import sys
import tty

mark, status = sys.argv[1:]
with open(mark, "ab") as file:
    file.write(b"runs\n")
tty.setraw(0)
os.write(1, b"ready")
while True:
    data = left = os.read(0, 4096)
    while left:
        left = left[os.write(1, left) :]
    if data.endswith(b"\x1b"):
        sys.exit(int(status))
