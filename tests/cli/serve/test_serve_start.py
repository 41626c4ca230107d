"""What a server says and checks when it starts."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.requirements import requirement
from tests.support.servers import OURS, reference_binary


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


STRICT_CASES = [
    ("nosuch = 1", "unknown configuration field `nosuch`"),
    ("[nosuch]\na = 1", "unknown configuration field `nosuch`"),
    ("[history]\nzork = 1", "unknown configuration field `history.zork`"),
    (
        '[mcp_servers.a]\ncommand = "x"\nzork = 1',
        "unknown configuration field `mcp_servers.a.zork`",
    ),
    ("[features]\nzork = true", "unknown configuration field `features.zork`"),
    ("model = 5", "invalid type: integer `5`, expected a string in `model`"),
    ("allow_login_shell = 'x'", 'invalid type: string "x", expected a boolean'),
    ("model_context_window = true", "invalid type: boolean `true`, expected an integer"),
    ("mcp_servers = 5", "invalid type: integer `5`, expected a map in `mcp_servers`"),
    ("sandbox_mode = 'x'", "unknown variant `x`, expected one of `read-only`, `workspace-write`"),
    ("approval_policy = 'x'", "unknown variant `x`"),
    ("approval_policy = { zork = {} }", "unknown variant `zork`"),
    ("approval_policy = 'never'", None),
    ("profile = 'x'", "no longer supported in `profile`"),
    ("model = 5\nzork = 1", "invalid type"),
    ("zork = 1\nmodel = 5", "invalid type"),
    ("[tui]\nanimations = true", None),
    ("sandbox_mode = 'read-only'\n[projects.'/x']\ntrust_level = 'trusted'", None),
    ("[features]\ngoals = true\n[mcp_servers.a]\ncommand = 'x'\nstartup_timeout_sec = 1.5", None),
    ("[shell_environment_policy]\ninherit = 'core'\nset = { A = '1' }", None),
]


@requirement("cli:strict-config-fields")
@pytest.mark.parametrize(("content", "refusal"), STRICT_CASES)
def test_a_strict_configuration_has_only_settings_that_codex_knows(tmp_path, content, refusal):
    (tmp_path / "config.toml").write_text(content)
    env = {"CODEX_HOME": str(tmp_path)}
    assert started(env=env).returncode == 0
    done = started("--strict-config", env=env)
    assert done.returncode == (0 if refusal is None else 1)
    if refusal is not None:
        assert f"Error: {tmp_path}/config.toml: {refusal}" in done.stderr


@requirement("cli:strict-config-fields")
@pytest.mark.parametrize(("content", "refusal"), STRICT_CASES)
def test_the_reference_refuses_the_same_configurations(tmp_path, content, refusal):
    binary = reference_binary()
    if binary is None:
        pytest.skip("the reference is not installed")
    (tmp_path / "config.toml").write_text(content)
    command = [str(binary), "exec-server", "--strict-config", "--listen", "stdio"]
    env = {"CODEX_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )
    assert done.returncode == (0 if refusal is None else 1)


@requirement("cli:strict-config-fields")
@pytest.mark.parametrize(
    ("override", "refusal"),
    [
        ("nosuch=1", "unknown configuration field `nosuch` in -c/--config override"),
        ("history.zork=1", "unknown configuration field `history.zork` in -c/--config override"),
        ("history={zork=1}", "unknown configuration field `history.zork` in -c/--config override"),
        ("model=5", "invalid type: integer `5`, expected a string in `model`"),
        ("nonsense", "Invalid override (missing '='): nonsense"),
        ("=5", "Empty key in override: =5"),
        ("model=abc", None),
        ("history.max_bytes=5", None),
    ],
)
def test_overrides_are_checked_like_the_file(tmp_path, override, refusal):
    env = {"CODEX_HOME": str(tmp_path)}
    assert started("-c", override, env=env).returncode == 0
    done = started("--strict-config", "-c", override, env=env)
    assert done.returncode == (0 if refusal is None else 1)
    assert (refusal or "") in done.stderr


@requirement("cli:unknown-feature")
@pytest.mark.parametrize("option", ["--enable", "--disable"])
def test_a_feature_that_codex_does_not_know_is_refused(tmp_path, option):
    env = {"CODEX_HOME": str(tmp_path)}
    assert started(option, "unified_exec", env=env).returncode == 0
    done = started(option, "nosuch", env=env)
    assert (done.returncode, done.stderr) == (1, "Error: Unknown feature flag: nosuch\n")


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
