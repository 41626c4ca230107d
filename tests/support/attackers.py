"""Programs that use more than they may. Each of them stops by itself after a while."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20
# So much is tried; it would not harm the machine.
_SIZE = 384
_LASTS = "import time; time.sleep(60)"


class Attacker(NamedTuple):
    """*code* in Python goes beyond *limit*, whose value is *value*."""

    limit: str
    value: float
    code: str
    # True if the kernel refuses more, so that the command is not ended; it says what it got.
    is_refused: bool = False


_GROW = f"""
import mmap, os, sys, time
def grow(take):
    for _ in range({_SIZE}):
        take(b"x" * {MIB})
        time.sleep(0.002)
    time.sleep(60)
"""
_FORKS = """
import os, time
made = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made, flush=True)
"""
_THREADS = """
import threading, time
made = 0
try:
    for _ in range(300):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made, flush=True)
"""

ATTACKERS: dict[str, Attacker] = {
    "malloc": Attacker("memory", 64 * MIB, f"{_GROW}\nkept = []\ngrow(kept.append)"),
    "memfd": Attacker(
        "memory", 64 * MIB, f"{_GROW}\nfd = os.memfd_create('x')\ngrow(lambda b: os.write(fd, b))"
    ),
    "shared map": Attacker(
        "memory", 64 * MIB, f"{_GROW}\nmade = mmap.mmap(-1, {_SIZE * MIB})\ngrow(made.write)"
    ),
    "tmpfs file": Attacker(
        "memory",
        64 * MIB,
        f"{_GROW}\nname = '/dev/shm/exec-server-test-%d' % os.getpid()\n"
        "file = open(name, 'wb', buffering=0)\nos.unlink(name)\ngrow(file.write)",
    ),
    "fork bomb": Attacker("pids", 24, f"{_FORKS}\ntime.sleep(60)", is_refused=True),
    "threads": Attacker("pids", 24, f"{_THREADS}\ntime.sleep(60)", is_refused=True),
    "spin": Attacker(
        "cpuSeconds",
        0.4,
        "import os, time\nend = time.time() + 60\nos.fork()\nwhile time.time() < end: pass",
    ),
    "sleep": Attacker("wall", 0.4, _LASTS),
    "yes": Attacker(
        "outputBytes", 100_000, "import os\nfor _ in range(100_000): os.write(1, b'y' * 1024)"
    ),
    "big file": Attacker(
        "disk",
        4 * MIB,
        "import os, time\n"
        "file = open(os.environ['PLACE'] + '/big', 'wb', buffering=0)\n"
        f"for _ in range(64): file.write(b'x' * {MIB}); os.fsync(file.fileno())\n"
        "time.sleep(60)",
    ),
    "10,000 files": Attacker(
        "disk",
        4 * MIB,
        "import os, time\n"
        "for number in range(10_000):\n"
        "    with open(f\"{os.environ['PLACE']}/{number}\", 'wb') as file:\n"
        "        file.write(b'x' * 4096)\n"
        "time.sleep(60)",
    ),
    "daemon": Attacker(
        "memory",
        64 * MIB,
        # The command ends at once, and what it has left behind is limited all the same.
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"print(os.getpid(), flush=True)\n{_GROW}\nkept = []\ngrow(kept.append)",
    ),
}
