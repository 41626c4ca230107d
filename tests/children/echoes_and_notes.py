"""Echo every line of the input, until its end.

    echoes_and_notes.py MARK

MARK gets a line at the start and, at the end, the number of bytes that were printed and their
SHA-256.
"""

import hashlib
import sys


def note(text: str) -> None:
    with open(sys.argv[1], "a", encoding="ascii") as file:
        file.write(text + "\n")


note("runs")
digest, said = hashlib.sha256(), 0
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    digest.update(line)
    said += len(line)
note(f"said {said} {digest.hexdigest()}")
