"""What a server says and checks when it starts."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.requirements import requirement
from tests.support.servers import OURS


def started(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A server that ends at once, with the end of its input."""
    command = [*OURS, *words, "--listen", "stdio"]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 30}
    return subprocess.run(command, env=env, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


@requirement("cli:strict-config")
@pytest.mark.parametrize(
    ("content", "status"),
    [(None, 0), ("", 0), ('model = "x"', 0), ("model = ", 1), ("[a", 1), ("\xff", 1)],
)
def test_a_broken_configuration_is_refused_if_it_is_to_be_checked(tmp_path, content, status):
    if content is not None:
        (tmp_path / "config.toml").write_bytes(content.encode("latin-1"))
    env = {"CODEX_HOME": str(tmp_path)}
    assert started(env=env).returncode == 0
    done = started("--strict-config", env=env)
    assert done.returncode == status
    assert (f"Error: {tmp_path}/config.toml: " in done.stderr) is bool(status)


@requirement("cli:rust-log-listening")
@pytest.mark.parametrize(("level", "is_told"), [("info", True), ("debug", True), ("warn", False)])
def test_the_address_is_logged_if_rust_log_asks_for_it(level, is_told):
    with subprocess.Popen(
        OURS, env={"RUST_LOG": level}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        server.terminate()
        _, told = server.communicate(timeout=30)
    assert (f"listening on {url}" in told) is is_told


@requirement("logs:root")
@pytest.mark.skipif(os.geteuid() != 0, reason="this is a warning for root")
def test_a_server_of_root_warns_if_warnings_are_asked_for():
    assert started(env={}).stderr == ""
    told = started("--log-level", "warning", env={}).stderr
    assert "serving as root" in told and len(told.splitlines()) == 1
