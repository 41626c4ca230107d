"""Make every attempt, each in a process of its own."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys

from . import devices, files, kernel, links, metadata, namespaces, proc, processes, sockets
from .attempt import ATTEMPTS, Attempt, NoGain, Stage

ALL = (files, links, metadata, proc, devices, namespaces, sockets, processes, kernel)
# The time limit of an attempt; one that hangs ends with SIGALRM.
_SECONDS = 10


def outcome(function: Attempt, stage: Stage) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.write(writer, _tried(function, stage).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return signal.Signals(-code).name if code < 0 else said


def _tried(function: Attempt, stage: Stage) -> str:
    signal.alarm(_SECONDS)
    try:
        function(stage)
    except NoGain:
        return "no gain"
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, repr(exc))
    except BaseException as exc:
        return repr(exc)
    return "done"


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        stage = Stage(**json.load(file))
    wanted = sys.argv[2:] or ATTEMPTS
    for name in wanted:
        os.chdir(stage.workspace)
        print(json.dumps({"name": name, "outcome": outcome(ATTEMPTS[name], stage)}), flush=True)


if __name__ == "__main__":
    main()
