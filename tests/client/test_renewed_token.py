"""A token that is replaced while a client runs: the next connection uses the new one."""

from __future__ import annotations

import hashlib
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from exec_server.client.client import ExecServerClient
from exec_server.client.environments.bearer_tokens import RenewedToken, TokenFile
from exec_server.client_urls import connect
from exec_server.errors import ConfigurationError
from exec_server.limits import Limits
from exec_server.local_server import environments
from exec_server.remote.credentials.credentials import HarnessToken
from exec_server.server.authentication import CapabilityToken
from exec_server.server.serving import serve
from tests.requirements import requirement
from tests.support.fault_proxy import fault_proxy

QUICK = Limits(recovery_pause=0.01)


def accept(check: CapabilityToken, token: str) -> None:
    check._sha256 = hashlib.sha256(token.encode()).digest()


@requirement("client/token:renewed")
@pytest.mark.parametrize("way", ["url", "environment"])
async def test_a_rotated_token_file_is_read_again_for_the_next_connection(tmp_path, way):
    file = tmp_path / "token"
    file.write_text("first\n")
    check = CapabilityToken(hashlib.sha256(b"first").digest())
    async with serve(authenticator=check) as server, fault_proxy(server.url) as proxy:
        opening: AbstractAsyncContextManager[ExecServerClient]
        if way == "url":
            opening = connect(proxy.url, token=TokenFile(file), limits=QUICK)
        else:
            text = f'[[environments]]\nid = "box"\nurl = "{proxy.url}"\n'
            (tmp_path / "environments.toml").write_text(text)
            (tmp_path / "exec-server.toml").write_text(
                '[environments.box]\nauth_bearer_token_file = "token"\n'
            )
            manager = environments(env={**os.environ, "CODEX_HOME": str(tmp_path)})
            opening = manager.connect("box", limits=QUICK)
        async with opening as client:
            session = client.session_id
            accept(check, "second")
            proxy.cut()
            # Until the file is replaced, the old token is refused again and again.
            await proxy.wait(lambda proxy: proxy.connections > 2)
            file.write_text("second\n")
            assert (await client.run(["echo", "hello"])).stdout == b"hello\n"
            assert client.session_id == session


def test_a_source_that_fails_later_leaves_the_last_token(tmp_path: Path):
    file = tmp_path / "token"
    with pytest.raises(ConfigurationError):
        RenewedToken(TokenFile(file))
    file.write_text("first")
    token = RenewedToken(TokenFile(file))
    file.unlink()
    assert token() == "first"
    # A file that is just being written.
    file.write_text("")
    assert token() == "first"
    file.write_text("second")
    assert token() == "second"
    assert RenewedToken("given")() == "given"


def test_a_harness_sends_the_token_that_is_valid_now():
    tokens = iter(["first", "first", "second"])
    credentials = HarnessToken(lambda: next(tokens), account_id="a")
    assert credentials.headers()["authorization"] == "Bearer first"
    assert credentials.headers()["authorization"] == "Bearer second"
