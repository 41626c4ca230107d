"""Do the steps of deploy/Containerfile without an engine: ``python scripts/container_by_hand.py``.

Each RUN is a shell in bubblewrap. Its system is this machine's, and cannot be changed; /etc is a
copy, and /opt, /home and the folders of the steps are empty. COPY is a copy. It shows that steps
work, and that what they make runs as the user of the image without a capability. It does not show
the base image: its packages, its size, and programs that only this machine has.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_WRITABLE = (
    "/etc",
    "/opt",
    "/home",
    "/source",
    "/wheels",
    "/state",
    "/tmp",
    "/var/log",
    "/var/mail",
)


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, with their words on one line."""
    text = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


class Image:
    """A stage of the build: folders that its steps may write to, and its variables."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.variables = {"PATH": f"{python.parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.workdir = "/"
        for name in _WRITABLE:
            self.path(name).mkdir(parents=True, exist_ok=True)
        shutil.copytree("/etc", self.path("/etc"), symlinks=True, dirs_exist_ok=True)

    def path(self, name: str) -> Path:
        return self.folder / name.lstrip("/")

    def run(self, command: list[str], *options: str) -> None:
        """Run *command* with the folders of this stage; fails if it does."""
        words = ["bwrap", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--clearenv"]
        words += ["--tmpfs", "/"]
        for path in sorted(Path("/").iterdir()):
            if path.is_symlink():
                words += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir() and str(path) not in (*_WRITABLE, "/dev", "/proc", "/sys"):
                words += ["--ro-bind", str(path), str(path)]
        words += ["--dev", "/dev", "--proc", "/proc"]
        for name in _WRITABLE:
            words += ["--bind", str(self.path(name)), name]
        for name, value in self.variables.items():
            words += ["--setenv", name, value]
        subprocess.run(
            [*words, "--chdir", self.workdir, *options, *command], check=True, timeout=1500
        )


def build(scratch: Path, python: Path) -> Image:
    """Do all instructions; returns the last stage."""
    stages: dict[str, Image] = {}
    image = None
    for word, rest in instructions():
        print(f"{word} {rest[:110]}", flush=True)
        if word == "FROM":
            image = Image(scratch / str(len(stages)), python)
            stages[rest.rpartition(" AS ")[2] or str(len(stages))] = image
            continue
        assert image is not None
        if word == "RUN":
            image.run(["sh", "-c", rest])
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                image.variables[name] = value.replace("$PATH", image.variables["PATH"])
        elif word == "WORKDIR":
            image.workdir = rest
            image.path(rest).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *sources, target = rest.split()
            origin = ROOT
            if sources[0].startswith("--from="):
                origin = stages[sources.pop(0).removeprefix("--from=")].folder
            for source in sources:
                _copy(origin / source.lstrip("/"), image.path(str(Path(image.workdir, target))))
    assert image is not None
    return image


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def main() -> int:
    python = Path(sys.argv[1] if len(sys.argv) > 1 else sys.executable).absolute()
    with tempfile.TemporaryDirectory(prefix="container-") as name:
        image = build(Path(name), python)
        as_user = ("--unshare-user", "--uid", "10001", "--gid", "10001", "--cap-drop", "ALL")
        for words in (["--version"], ["registry", "--help"], ["doctor"]):
            image.run(["sh", "-c", f"exec-server {' '.join(words)} | head -n 5"], *as_user)
    print("all steps work by hand")
    return 0


if __name__ == "__main__":
    sys.exit(main())
