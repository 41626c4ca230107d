"""End at once with status argv[2], while a child holds stdout and the tether argv[1].

The child prints `late` and ends when a line comes from stdin, which they share.
"""

import os
import sys

os.open(sys.argv[1], os.O_WRONLY)
if os.fork():
    print("ready", flush=True)
    os._exit(int(sys.argv[2]))
os.read(0, 1)
os.write(1, b"late\n")
