"""The quick end of the program loses nothing."""

from __future__ import annotations

import subprocess
import sys


def run(program: str, *options: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.split()


LEAVE = (
    "import atexit, sys, threading\n"
    "from exec_server.cli import quick_exit\n"
    "atexit.register(print, 'registered')\n"
    "print('output')\n"
)


def test_output_is_written_and_what_is_registered_is_done():
    status, said = run(f"{LEAVE}quick_exit.leave(7)\nprint('never')")
    assert (status, said) == (7, ["output", "registered"])


def test_a_program_with_threads_ends_in_the_usual_way():
    program = (
        f"{LEAVE}"
        "go = threading.Event()\n"
        "threading.Thread(target=lambda: (go.wait(), print('thread'))).start()\n"
        "status = quick_exit.leave(7)\n"
        "go.set()\n"
        "sys.exit(status)\n"
    )
    assert run(program) == (7, ["output", "thread", "registered"])


def test_development_mode_ends_in_the_usual_way():
    status, said = run(f"{LEAVE}sys.exit(quick_exit.leave(7) + 1)", "-X", "dev")
    assert (status, said) == (8, ["output", "registered"])
