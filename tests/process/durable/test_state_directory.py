"""The files of a state directory: whole or unchanged, and in a directory of their own."""

from __future__ import annotations

import os
import stat

import pytest

from exec_server.errors import ConfigurationError
from exec_server.process.durable.state_directory import StateDirectory, StoredSession
from tests.requirements import requirement


def session(owner: str) -> StoredSession:
    return StoredSession(id="a", owner=owner, retention=1.0, generation=1, mark=1)


@requirement("durable:private")
def test_a_directory_with_other_files_is_refused_and_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "other").touch()
    with pytest.raises(ConfigurationError, match="holds other files"):
        StateDirectory(tmp_path).open(create=True)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert os.listdir(tmp_path) == ["other"]


@requirement("durable:private")
def test_an_empty_directory_and_one_of_an_earlier_server_become_private(tmp_path):
    for _ in range(2):
        tmp_path.chmod(0o755)
        state = StateDirectory(tmp_path)
        assert state.open(create=True)
        state.close()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_session_that_is_not_written_completely_stays_as_it_was(tmp_path, monkeypatch):
    state = StateDirectory(tmp_path / "state")
    state.open(create=True)
    state.save_session(session("first"))
    write = os.write

    def write_little(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return write(fd, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_little)
        with pytest.raises(OSError, match="No space"):
            state.save_session(session("second"))
    assert [each.owner for each in state.sessions()] == ["first"]
    state.close()
