"""Which modules a start loads: each one costs time before the first answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_server.cli.late_modules import LATE
from tests.support.modules import loaded, own, unwanted

_PROGRAM = [sys.executable, "-X", "importtime", "-P", "-m", "exec_server"]
_DEADLINE = 60


def run(*words: str) -> set[str]:
    done = subprocess.run([*_PROGRAM, *words], capture_output=True, text=True, timeout=_DEADLINE)
    assert done.returncode == 0, done.stderr[-2000:]
    return loaded(done.stderr)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The URL of a server, and the file that gets the names of the modules that it loads."""
    report = tmp_path / "report"
    with report.open("wb") as stderr:
        process = subprocess.Popen(
            [*_PROGRAM, "--listen", "ws://127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), report
    finally:
        process.terminate()
        process.communicate(timeout=_DEADLINE)


def test_the_version_is_printed_without_commands_or_libraries():
    modules = run("--version")
    heavy = ("typing", "argparse", "asyncio", "logging", "msgspec", "exec_server.errors")
    assert not unwanted(modules, *heavy, "exec_server.cli.commands", "importlib.metadata")
    assert own(modules) <= 10


def test_the_help_is_printed_without_the_server_and_its_libraries():
    modules = run("--help")
    heavy = ("asyncio", "logging", "msgspec", "ssl", "socket", "dataclasses", "inspect", "shutil")
    late = ("gettext", "typing", "exec_server.server", "exec_server.limits")
    assert not unwanted(modules, *heavy, *late)
    assert own(modules) <= 30


def test_a_server_listens_without_what_it_may_never_need(server: tuple[str, Path]):
    url, report = server
    assert url.startswith("ws://")
    modules = loaded(report.read_text())
    assert "exec_server.server.serving" in modules
    libraries = ("picows.proxy", "picows.api", "python_socks", "aiofastnet", "dataclasses")
    others = ("tempfile", "shutil", "sqlite3", "http.client", "email", "cryptography", "aiohttp")
    tables = ("tomllib", "random", "gettext", "encodings.idna")
    assert not unwanted(modules, *libraries, *others, *tables)
    parts = ("client", "remote.executor", "hub", "outbound.exchanges", "screens", "network")
    late = ("files", "discovery", "recording", "audit", "process.durable", "schema")
    assert not unwanted(modules, *LATE, "dis", "opcode")
    assert not unwanted(modules, *(f"exec_server.{name}" for name in (*parts, *late)))
    assert own(modules) <= 200


def test_run_loads_neither_a_server_nor_proxies(server: tuple[str, Path]):
    url, _ = server
    modules = run("run", url, "--", "true")
    libraries = ("picows.proxy", "picows.api", "python_socks", "aiofastnet")
    others = ("tomllib", "shutil", "gettext", "dataclasses")
    parts = ("server", "hub", "process", "remote.harness", "outbound", "web", "ssh_door")
    late = ("terminal", "client.files.remote_files", "client.http.remote_http", "cli.process.shell")
    few = ("sandbox", "cli.sandbox.denial_advice", "cli.files", "client_urls")
    names = (f"exec_server.{name}" for name in (*parts, *late, *few, "client.streams.forwards"))
    assert not unwanted(modules, *LATE, "dis", "opcode")
    assert not unwanted(modules, *libraries, *others, *names)
    assert own(modules) <= 175


def test_a_door_loads_neither_a_server_nor_what_no_connection_of_ours_needs(
    server: tuple[str, Path], tmp_path: Path
):
    url, _ = server
    pytest.importorskip("asyncssh")
    words = ["--key-dir", str(tmp_path / "keys"), "--linger", "0", "--url", url, "build"]
    done = subprocess.run(
        [*_PROGRAM, "ssh-proxy", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_DEADLINE,
    )
    assert done.stdout.startswith(b"SSH-2.0-")
    modules = loaded(done.stderr.decode())
    assert "asyncssh.connection" in modules
    libraries = ("picows.proxy", "picows.api", "python_socks", "aiofastnet", "cryptography.x509")
    # cryptography needs `inspect` and, with it, what that needs.
    late = set(LATE) - {"inspect", "tokenize"}
    assert not unwanted(modules, *libraries, *late, "gettext", "tomllib")
    parts = ("server", "hub", "process", "remote.harness", "outbound", "web")
    assert not unwanted(modules, *(f"exec_server.{name}" for name in parts))
    assert own(modules) <= 200
