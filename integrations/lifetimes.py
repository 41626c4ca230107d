"""What a program of a framework has started must end with the program, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Seconds; the machine may be busy.
PATIENCE = 120.0
# A program in the background of a shell ignores SIGINT, and so do its children.
_PREFIX = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
# In a session of its own, in which no signal to the command's group reaches it.
COMMAND = "setsid sleep 600 & echo $! > {file}.new && mv {file}.new {file}; wait"


def until(is_so, what: str) -> None:
    """Wait until *is_so* returns true."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def is_gone(pid: int) -> bool:
    """True if a process does not exist, or is dead and not yet waited for."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def check(program: str, url: str, folder: Path, number: int, *words: str) -> None:
    """Run *program* until its command runs; after the signal *number* nothing of it may be left.

    The program gets *url*, the command for the shell, and *words* as its arguments.
    """
    file = folder / "pid"
    arguments = [url, COMMAND.format(file=file), *words]
    with subprocess.Popen(
        [sys.executable, "-c", _PREFIX + program, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            until(lambda: file.exists() or process.poll() is not None, "the command did not start")
            assert file.exists(), process.communicate()[0]
            process.send_signal(number)
            process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    pid = int(file.read_text())
    until(lambda: is_gone(pid), f"process {pid} was left behind")
