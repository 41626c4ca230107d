"""Empty environments, one for each Python: the wheel is installed and used in each of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.release.shell import ReleaseFailed, run

_OLDEST = (3, 11)


def interpreters() -> dict[str, Path]:
    """The newest interpreter of each Python from 3.11 on, by its version such as ``3.12``."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += sorted(pyenv.glob("3.*/bin"), key=lambda folder: _number(folder.parent.name))
    found: dict[str, Path] = {}
    for folder in folders:
        for path in folder.glob("python3.*"):
            match = re.fullmatch(r"python3\.(\d+)", path.name)
            if match and (3, int(match[1])) >= _OLDEST and _works(path):
                found[f"3.{match[1]}"] = path
    return dict(sorted(found.items(), key=lambda item: _number(item[0])))


def install(python: Path, folder: Path, *arguments: str | Path) -> Path:
    """Make an environment of *python* with *arguments* installed; return its interpreter."""
    run(python, "-m", "venv", folder)
    inner = folder / "bin" / "python"
    pip = [inner, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, *arguments)
    return inner


def use(program: list[str], version: str, home: Path) -> None:
    """Fail unless *program*, a command of exec-server, serves, runs a command and copies a file."""
    home.mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(home), "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": "", "PYTHONPATH": ""}
    told = run(*program, "--version", cwd=home, env=env).split()
    if told[-1] != version:
        raise ReleaseFailed(f"{program[0]} says that it is {told}")
    with serving(program, home, env) as url:
        said = run(*program, "run", url, "--", "echo", "hello", cwd=home, env=env)
        if said != "hello\n":
            raise ReleaseFailed(f"`run` printed {said!r}")
        (home / "here").write_text("content")
        run(*program, "cp", home / "here", f"{url}:{home}/there", cwd=home, env=env)
        if (home / "there").read_text() != "content":
            raise ReleaseFailed("`cp` did not copy")


@contextmanager
def serving(program: list[str], home: Path, env: dict[str, str]) -> Iterator[str]:
    """Start a server on a free port of the loopback; yields its URL."""
    command = [*program, "--listen", "ws://127.0.0.1:0"]
    server = subprocess.Popen(
        command, cwd=home, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        if not url.startswith("ws://"):
            raise ReleaseFailed(f"{' '.join(command)} printed {url!r}, not its URL")
        yield url
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _works(path: Path) -> bool:
    # The shims of pyenv exist for versions that are not chosen.
    if shutil.which(path) is None:
        return False
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
