"""A directory that a server works in cannot give it modules."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from exec_server.client_urls import connect
from tests.requirements import requirement
from tests.support.servers import start_server

pytestmark = pytest.mark.one_loop

SCRIPT = [sys.executable, str(Path(sysconfig.get_path("scripts"), "exec-server"))]
MODULE = [sys.executable, "-m", "exec_server"]
# Modules that Python itself loads before it runs a module by its name; only `-P` protects those.
LOADED_BY_PYTHON = "import runpy, sys; print(*sys.modules)"
DEPENDENCIES = ("msgspec", "uvloop", "picows", "aiohttp", "cryptography", "yarl", "multidict")


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A directory with a module for every name of the standard library and of the dependencies."""
    command = [sys.executable, "-c", LOADED_BY_PYTHON]
    loaded = set(subprocess.check_output(command, text=True).split())
    folder = tmp_path / "workspace"
    folder.mkdir()
    for name in {*sys.stdlib_module_names, *DEPENDENCIES} - loaded:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'planted')!r}, 'a').write({name!r} + ' ')\n"
        )
    return folder


def _ran(planted: Path) -> str:
    """The planted modules that have run."""
    told = planted.parent / "planted"
    return told.read_text() if told.exists() else ""


@requirement("security/imports:workspace")
@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("variables", [{}, {"EXEC_SERVER_TOKEN": "secret"}])
async def test_a_server_loads_no_module_of_its_directory(planted, command, variables):
    env = {**os.environ, **variables}
    with start_server(command=command, cwd=str(planted), env=env) as running:
        async with connect(running.url) as client:
            await client.run(["true"])
            await client.fs.write_text(planted / "file", "x")
            confined = client.fs.sandboxed("read-only")
            assert await confined.read_text(planted / "file") == "x"
            await client.run(["true"], sandbox="read-only", cwd=str(planted))
    assert _ran(planted) == ""


@requirement("security/imports:workspace")
@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["env"], ["ls", "ws://127.0.0.1:1:/"]]
)
def test_a_command_loads_no_module_of_its_directory(planted, command, words):
    subprocess.run([*command, *words], cwd=planted, capture_output=True, timeout=60, check=False)
    assert _ran(planted) == ""


@requirement("security/imports:workspace")
def test_a_program_that_imports_the_package_keeps_its_path(tmp_path):
    (tmp_path / "tool.py").write_text("import sys, exec_server; import beside; print(beside.X)")
    (tmp_path / "beside.py").write_text("X = 5")
    command = [sys.executable, "-m", "tool"]
    assert subprocess.check_output(command, cwd=tmp_path, timeout=60) == b"5\n"
