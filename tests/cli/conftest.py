"""Fixtures for tests of commands: terminals, and a home directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cue, MakeTerminal, terminals
from tests.support.servers import start_server


@pytest.fixture
def terminal() -> Iterator[MakeTerminal]:
    with terminals() as make:
        yield make


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which commands find their configuration and their records."""
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CODEX_EXEC_SERVER_URL", "EXEC_SERVER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "codex").mkdir()
    return tmp_path


@pytest.fixture
def cue(tmp_path: Path) -> Cue:
    return Cue(tmp_path / "cue")


@pytest.fixture
def server_with_token(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a server, and the token that it requires."""
    file = tmp_path / "token"
    file.write_text("secret-token")
    file.chmod(0o600)
    with start_server("--ws-auth", "capability-token", "--ws-token-file", str(file)) as running:
        yield running.url, "secret-token"
