"""Copy Python, its libraries and the packages that the server needs: used by limits_vm.sh.

`limits_image.py IMAGE` runs with the Python that is copied.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

IMAGE = Path(sys.argv[1])
NEEDED = ("aiofastnet", "msgspec", "multidict", "picows", "pybase64", "python_socks", "uvloop")
LEFT_OUT = shutil.ignore_patterns("test", "tests", "__pycache__", "idlelib", "tkinter", "config-*")


def main() -> None:
    python = Path(os.path.realpath(sys.executable))
    standard = Path(sysconfig.get_path("stdlib"))
    copy_tree(standard, IMAGE / standard.relative_to("/"))
    copy(python, IMAGE / python.relative_to("/"))
    (IMAGE / "usr/bin").mkdir(parents=True, exist_ok=True)
    target = IMAGE / "usr/bin/python3"
    if not target.exists():
        target.symlink_to(python)
    (site,) = Path(".venv/lib").glob("python3.*/site-packages")
    for name in NEEDED:
        if (site / name).is_dir():
            copy_tree(site / name, IMAGE / "opt/site" / name)
    copy(site / "typing_extensions.py", IMAGE / "opt/site/typing_extensions.py")
    for file in (python, *IMAGE.rglob("*.so")):
        copy_libraries(file)


def copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=LEFT_OUT, dirs_exist_ok=True, symlinks=False)


def copy_libraries(file: Path) -> None:
    """Copy all that the loader would load for *file*."""
    told = subprocess.run(["ldd", file], capture_output=True, text=True, check=False).stdout
    for path in re.findall(r"(/\S+) \(0x", told):
        copy(Path(path), IMAGE / path.lstrip("/"))


def copy(source: Path, target: Path) -> None:
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


main()
