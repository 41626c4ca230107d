"""`exec-server.toml`: the places of tokens that Codex must not see."""

from __future__ import annotations

import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from exec_server.client.environments.manager import load_environments
from exec_server.errors import ConfigurationError
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from exec_server.transport.certificate import Certificate
from tests.requirements import requirement
from tests.support.certificates import make_certificates
from tests.support.cli import finished

BOX = '[[environments]]\nid = "box"\nurl = "ws://127.0.0.1:1"\n'


def token_of(home: Path, name: str = "box", **env: str) -> Any:
    environment: Any = load_environments(home, env).resolve(name)
    return None if environment.token is None else environment.token()


@requirement("env/toml:own-file")
def test_a_token_is_in_a_file_or_in_a_variable(tmp_path):
    (tmp_path / "environments.toml").write_text(BOX + 'auth_bearer_token = "there"\n')
    assert token_of(tmp_path) == "there"
    own = tmp_path / "exec-server.toml"
    own.write_text('[environments.box]\nauth_bearer_token_file = "box.token"\n')
    (tmp_path / "box.token").write_text("in a file\n")
    assert token_of(tmp_path) == "in a file"
    own.write_text('[environments.box]\nauth_bearer_token_env = "BOX"\n')
    assert token_of(tmp_path, BOX="in a variable") == "in a variable"


@requirement("env/toml:own-file")
def test_the_server_of_the_variable_has_one_too(tmp_path):
    (tmp_path / "exec-server.toml").write_text(
        '[environments.remote]\nauth_bearer_token_env = "T"\n[environments.gone]\n'
    )
    env = {"CODEX_EXEC_SERVER_URL": "ws://127.0.0.1:1", "T": "secret"}
    assert token_of(tmp_path, "remote", **env) == "secret"


@requirement("env/toml:tls-files")
@pytest.mark.parametrize("has_token", [False, True])
async def test_an_environment_has_its_files_for_tls(tmp_path, has_token):
    make_certificates(tmp_path)
    pem, authority = str(tmp_path / "server.pem"), str(tmp_path / "authority.pem")
    token = CapabilityToken(sha256(b"secret").digest()) if has_token else None
    tls = Certificate(pem, pem, client_ca=authority)
    async with serve(tls=tls, authenticator=token) as server:
        (tmp_path / "environments.toml").write_text(
            f'[[environments]]\nid = "box"\nurl = "{server.url}"\n'
        )
        own = '[environments.box]\nca_file = "authority.pem"\nclient_cert = "server.pem"\n'
        (tmp_path / "exec-server.toml").write_text(
            own + ('auth_bearer_token_env = "T"\n' if has_token else "")
        )
        manager = load_environments(tmp_path, {"T": "secret"})
        async with manager.connect("box") as client:
            assert client.is_connected
        # What the caller gives comes first.
        with pytest.raises(ConfigurationError, match="CA file /no/such/file"):
            async with manager.connect("box", ca_file="/no/such/file"):
                pass


@requirement("env/toml:own-file")
@pytest.mark.parametrize(
    "text",
    [
        "colour = 1",
        "[environments.box]\ncolour = 1",
        "[environments.box]",
        '[environments.box]\nauth_bearer_token_env = "A"\nauth_bearer_token_file = "B"',
        '[environments.local]\nauth_bearer_token_env = "A"',
        "[environments",
        "\xff",
    ],
)
def test_a_wrong_file_is_told_by_its_name(tmp_path, text):
    (tmp_path / "environments.toml").write_text(BOX)
    (tmp_path / "exec-server.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"exec-server\.toml"):
        load_environments(tmp_path, {})


@requirement("env/toml:own-file")
@pytest.mark.one_loop
async def test_keys_that_codex_refuses_work_with_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "environments.toml").write_text(BOX + 'auth_bearer_token_file = "box.token"\n')
    (tmp_path / "box.token").write_text("secret")
    with caplog.at_level(logging.WARNING):
        assert token_of(tmp_path) == "secret"
    [warning] = caplog.messages
    assert "`auth_bearer_token_file` of environment `box`" in warning
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    done = await finished("env")
    assert done.status == 0 and f"Warning: {warning}\n" in done.stderr


@requirement("env/toml:own-file")
@pytest.mark.one_loop
async def test_a_name_without_an_environment_is_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "environments.toml").write_text(BOX)
    own = tmp_path / "exec-server.toml"
    own.write_text('[environments.bxo]\nauth_bearer_token_file = "box.token"\n')
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    done = await finished("env")
    assert done.status == 0
    assert f"Warning: {own}: [environments.bxo] has no effect" in done.stderr
    monkeypatch.setenv("CODEX_EXEC_SERVER_URL", "none")
    (tmp_path / "environments.toml").unlink()
    assert (await finished("env")).stderr.count("Warning") == 0


@requirement("env/toml:own-file")
@pytest.mark.parametrize(
    ("text", "key"), [("colour = 1", "colour"), ("[environments.box]\ncolour = 1", "colour")]
)
def test_an_unknown_key_is_told_with_its_file(tmp_path, text, key):
    (tmp_path / "environments.toml").write_text(BOX)
    own = tmp_path / "exec-server.toml"
    own.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_environments(tmp_path, {})
    assert str(own) in str(raised.value) and f"`{key}`" in str(raised.value)
