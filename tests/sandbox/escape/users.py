"""The users that a server runs as: root, and the unprivileged user `nobody`."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.servers import ROOT

_NOBODY = 65534
_BECOME = (
    "import os, sys; os.setgroups([]); os.setgid({id}); os.setuid({id}); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
_NEEDED = "import msgspec, picows, exec_server.cli.main"


class User(NamedTuple):
    name: str
    uid: int
    gid: int
    # A Python that this user can run, and the folder of our packages.
    python: str
    path: str

    @property
    def options(self) -> dict[str, Any]:
        """Options of subprocess.Popen that run it as this user."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    @property
    def command(self) -> list[str]:
        """The command that runs our server as this user."""
        server = [self.python, "-m", "exec_server"]
        if self.uid == os.geteuid():
            return server
        return [sys.executable, "-I", "-S", "-c", _BECOME.format(id=self.uid), *server]


@functools.cache
def user(name: str) -> User | None:
    """`root` or `nobody`; None where such a server cannot be run."""
    path = os.pathsep.join((str(ROOT / "src"), *_site_packages()))
    python = os.path.realpath(sys.executable)
    if name == "root":
        return User(name, 0, 0, python, path) if os.geteuid() == 0 else None
    if os.geteuid() != 0:
        return User(name, os.geteuid(), os.getegid(), python, path)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (python, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        found = User(name, _NOBODY, _NOBODY, os.path.realpath(candidate), path)
        if Path(candidate).exists() and _can_run(found):
            return found
    return None


def _can_run(other: User) -> bool:
    try:
        tried = subprocess.run(
            [other.python, "-c", _NEEDED],
            env={"PYTHONPATH": other.path},
            cwd="/",
            capture_output=True,
            **other.options,
        )
    except OSError:
        return False
    return tried.returncode == 0


def _site_packages() -> list[str]:
    return [entry for entry in sys.path if entry.endswith("site-packages")]
