"""Do what each line of the input says, and print the result: `write PATH`, `mkdir PATH`, ..."""

import os
import sys


def written(path):
    with open(path, "w") as file:
        file.write("new")


WORK: dict = {
    "write": written,
    "read": lambda path: print(open(path).read()),
    "mkdir": os.mkdir,
    "rmdir": os.rmdir,
    "unlink": os.unlink,
    "rename": os.rename,
    "symlink": os.symlink,
    "chmod": lambda path: os.chmod(path, 0o640),
}

print("ready", flush=True)
for line in sys.stdin:
    name, *paths = line.split()
    try:
        WORK[name](*paths)
        print("done", flush=True)
    except OSError as exc:
        print(exc.strerror, flush=True)
