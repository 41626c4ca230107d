"""Leave the program without taking its modules apart, which takes Python 10 to 30 ms.

The kernel frees the memory of a process at once. What is registered for the end of the program is
done as usual, and a program that still has threads ends in the usual way.
"""

import atexit
import os
import sys


def leave(status: int) -> int:
    """End the program with *status*; return it if Python has to end the program itself."""
    threads = sys.modules.get("threading")
    if threads is not None and threads.active_count() > 1:
        return status
    # Tools that look at the end of a program, such as coverage or `-X dev`, see the usual one.
    if sys.flags.dev_mode or sys.flags.inspect or sys.gettrace() or sys.getprofile():
        return status
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            return status
    os._exit(status)
