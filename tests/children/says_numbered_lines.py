"""Print numbered lines, each with the time, until the file STOP exists or MOST were printed.

    says_numbered_lines.py MARK STOP LENGTH PAUSE MOST

MARK gets a line at the start and, at the end, the number of bytes printed and their SHA-256.
"""

import hashlib
import os
import sys
import time

mark, stop, length, pause, most = sys.argv[1:]


def note(text: str) -> None:
    with open(mark, "a", encoding="ascii") as file:
        file.write(text + "\n")


note("runs")
digest, said = hashlib.sha256(), 0
for number in range(int(most)):
    line = f"{number} {time.monotonic():.6f} ".encode()
    line += b"." * (int(length) - len(line) - 1) + b"\n"
    sys.stdout.buffer.write(line)
    digest.update(line)
    said += len(line)
    if float(pause):
        sys.stdout.buffer.flush()
        time.sleep(float(pause))
    if os.path.exists(stop):
        break
sys.stdout.buffer.flush()
note(f"said {said} {digest.hexdigest()}")
