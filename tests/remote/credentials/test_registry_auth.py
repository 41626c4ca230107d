"""Credentials: which one is chosen, where it may be sent, and its headers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from exec_server.errors import ConfigurationError, RegistryError
from exec_server.remote.credentials import json_web_tokens
from exec_server.remote.credentials.credential_pipe import PipedCredential
from exec_server.remote.credentials.credentials import (
    ApiKey,
    BearerToken,
    ChatGptTokens,
    CredentialExpired,
    HarnessToken,
)
from exec_server.remote.credentials.registry_auth import find_credentials
from exec_server.remote.registry_http import Http
from tests.requirements import requirement
from tests.support.http_target import target


@requirement("remote/auth:hosts")
@pytest.mark.parametrize(
    ("url", "key_goes", "token_goes"),
    [
        ("https://openai.com/x", True, True),
        ("https://api.openai.org", True, True),
        ("http://api.openai.com", False, False),
        ("https://notopenai.com", False, True),
        ("https://openai.com.evil.example", False, True),
        ("https://registry.example", False, True),
        ("http://registry.example", False, False),
        ("http://127.0.0.1:1", True, True),
        ("http://127.9.9.9", True, True),
        ("https://[::1]:8", True, True),
        ("http://localhost:1", True, True),
        ("http://localhost.example", False, False),
        ("http://10.0.0.1", False, False),
        ("ftp://127.0.0.1", False, False),
        ("", False, False),
        ("http://[::1", False, False),
    ],
)
def test_a_credential_goes_only_where_it_may(url, key_goes, token_goes):
    for credential, may in ((ApiKey("k"), key_goes), (BearerToken("t"), token_goes)):
        if may:
            credential.check_url(url)
        else:
            with pytest.raises(ConfigurationError):
                credential.check_url(url)


@requirement("remote/auth:secrets-hidden")
def test_no_credential_shows_its_secret():
    for credential in (
        *(ApiKey("s3cret"), BearerToken("s3cret"), HarnessToken("s3cret")),
        ChatGptTokens("s3cret", account_id="a"),
    ):
        assert "s3cret" not in repr(credential) + str(credential)
        assert credential.headers()["authorization"] == "Bearer s3cret"
    for bad in ("", "a b", "a\nb", "\u00e9"):
        with pytest.raises(ConfigurationError):
            BearerToken(bad)


@pytest.fixture
async def http(no_leaks):
    made = Http()
    yield made
    await made.close()


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(**claims: object) -> str:
    head, body = (base64url(json.dumps(part).encode()) for part in ({"alg": "none"}, claims))
    return f"{head}.{body}.{base64url(b'signature')}"


def stored(home, **changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            "id_token": token(),
            "access_token": "opaque",
            "refresh_token": "refresh-1",
            "account_id": "account-1",
        },
        "last_refresh": "2999-01-01T00:00:00Z",
        "other": {"kept": True},
    }
    content |= changes
    (home / "auth.json").write_text(json.dumps(content))
    return content


@requirement("remote/auth:selection")
async def test_credentials_are_looked_for_in_order(http, tmp_path):
    environ = {"CODEX_HOME": str(tmp_path), "OPENAI_API_KEY": "not-this"}
    with pytest.raises(ConfigurationError):
        await find_credentials(environ, http=http)
    (tmp_path / "auth.json").write_text('{"OPENAI_API_KEY": "stored"}')
    assert await headers(environ, http) == {"authorization": "Bearer stored"}
    environ["CODEX_ACCESS_TOKEN"] = "at-personal"
    with pytest.raises(ConfigurationError, match="personal"):
        await find_credentials(environ, http=http)
    environ["CODEX_ACCESS_TOKEN"] = token()
    with pytest.raises(ConfigurationError, match="--use-agent-identity-auth"):
        await find_credentials(environ, http=http)
    environ["CODEX_API_KEY"] = " key "
    assert await headers(environ, http) == {"authorization": "Bearer key"}
    environ["EXEC_SERVER_REGISTRY_TOKEN"] = "ours"
    assert await headers(environ, http) == {"authorization": "Bearer ours"}
    environ["CODEX_ACCESS_TOKEN"] = "at-personal"
    with pytest.raises(ConfigurationError, match="not a JWT"):
        await find_credentials(environ, http=http, uses_agent_identity=True)


async def headers(environ, http, **options):
    return dict((await find_credentials(environ, http=http, **options)).headers())


@requirement("remote/auth:auth-json")
async def test_stored_tokens_are_sent_with_their_account(http, tmp_path):
    environ = {"CODEX_HOME": str(tmp_path)}
    stored(tmp_path)
    assert await headers(environ, http) == {
        "authorization": "Bearer opaque",
        "chatgpt-account-id": "account-1",
    }
    claims = {"https://api.openai.com/auth": {"chatgpt_account_is_fedramp": True}}
    tokens = {"id_token": token(**claims), "access_token": "a", "refresh_token": "r"}
    stored(tmp_path, tokens=tokens, auth_mode=None)
    assert await headers(environ, http) == {"authorization": "Bearer a", "x-openai-fedramp": "true"}
    for broken in ({**tokens, "id_token": "x"}, {"access_token": 1}):
        stored(tmp_path, tokens=broken)
        with pytest.raises(ConfigurationError):
            await find_credentials(environ, http=http)


@requirement("remote/auth:auth-json")
@pytest.mark.parametrize(
    ("access", "last_refresh", "is_due"),
    [
        (token(exp=1000 + 299), "2999-01-01T00:00:00Z", True),
        (token(exp=1000 + 301), "1970-01-01T00:00:00Z", False),
        ("opaque", "1969-12-20T00:00:00Z", True),
        ("opaque", "1969-12-30T00:00:00Z", False),
        ("opaque", None, False),
    ],
)
async def test_tokens_are_renewed_and_stored_in_time(http, tmp_path, access, last_refresh, is_due):
    renewed = {"id_token": token(), "access_token": "new", "refresh_token": "refresh-2"}

    async def answer(_request, line):
        await line.answer(200, json.dumps(renewed).encode())

    content = stored(tmp_path, last_refresh=last_refresh)
    content["tokens"]["access_token"] = access
    stored(tmp_path, **content)
    async with target(answer) as issuer:
        environ = {
            "CODEX_HOME": str(tmp_path),
            "CODEX_REFRESH_TOKEN_URL_OVERRIDE": f"{issuer.url}/oauth/token",
        }
        found = await headers(environ, http, now=lambda: 1000.0)
        assert found["authorization"] == f"Bearer {'new' if is_due else access}"
        assert len(issuer.received) == is_due
        await http.close()
    if is_due:
        assert json.loads(issuer.received[0].body) == {
            "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
            "grant_type": "refresh_token",
            "refresh_reason": "proactive_expiry",
            "refresh_token": "refresh-1",
        }
        after = json.loads((tmp_path / "auth.json").read_text())
        assert after["tokens"] == {**renewed, "account_id": "account-1"}
        assert after["last_refresh"] == "1970-01-01T00:16:40Z"
        assert after["other"] == {"kept": True}
        assert os.stat(tmp_path / "auth.json").st_mode & 0o777 == 0o600


@requirement("remote/auth:auth-json")
async def test_a_login_that_cannot_be_renewed_is_an_error(http, tmp_path):
    async def refuse(_request, line):
        await line.answer(400, b'{"refresh_token": "refresh-1"}')

    content = stored(tmp_path)
    content["tokens"]["access_token"] = token(exp=1)
    before = stored(tmp_path, **content)
    async with target(refuse) as issuer:
        environ = {
            "CODEX_HOME": str(tmp_path),
            "CODEX_REFRESH_TOKEN_URL_OVERRIDE": issuer.url,
        }
        with pytest.raises(RegistryError) as caught:
            await find_credentials(environ, http=http)
        assert "refresh-1" not in str(caught.value)
        await http.close()
    assert json.loads((tmp_path / "auth.json").read_text()) == before


# Agent identities.

SIGNER = generate_private_key(65537, 2048)
AGENT = Ed25519PrivateKey.generate()


def identity(**changes: object) -> str:
    claims = {
        "iss": "https://chatgpt.com/codex-backend/agent-identity",
        "aud": "codex-app-server",
        "iat": 1,
        "exp": 4_000_000_000,
        "agent_runtime_id": "runtime-1",
        "agent_private_key": base64.b64encode(
            AGENT.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        ).decode(),
        "account_id": "account-1",
        "chatgpt_user_id": "user-1",
        "chatgpt_account_is_fedramp": True,
    }
    head = {"alg": "RS256", "kid": "key-1"}
    signed = ".".join(
        base64url(json.dumps(part).encode()) for part in (head, {**claims, **changes})
    )
    return f"{signed}.{base64url(SIGNER.sign(signed.encode(), PKCS1v15(), SHA256()))}"


def keys(kid: str = "key-1") -> bytes:
    numbers = SIGNER.public_key().public_numbers()
    encoded = {
        name: base64url(value.to_bytes((value.bit_length() + 7) // 8))
        for name, value in (("n", numbers.n), ("e", numbers.e))
    }
    return json.dumps({"keys": [{"kty": "RSA", "kid": kid, **encoded}]}).encode()


@requirement("remote/auth:agent-identity")
async def test_an_agent_identity_begins_a_task_and_signs_requests(http):
    async def answer(request, line):
        body = keys() if request.line.startswith("GET") else b'{"taskId": "task-1"}'
        await line.answer(200, body)

    async with target(answer) as service:
        environ = {
            "CODEX_ACCESS_TOKEN": identity(),
            "CODEX_API_KEY": "ignored",
            "CODEX_AGENT_IDENTITY_JWKS_BASE_URL": f"{service.url}/backend-api",
            "CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL": service.url,
        }
        found = await headers(environ, http, uses_agent_identity=True, now=lambda: 1000.0)
        await http.close()
    jwks, register = service.received
    assert jwks.path == "/backend-api/wham/agent-identities/jwks"
    assert jwks.header("originator") == register.header("originator") == "codex_cli_rs"
    assert register.path == "/v1/agent/runtime-1/task/register"
    assert verify(json.loads(register.body), "runtime-1:{timestamp}")
    scheme, _, assertion = found.pop("authorization").partition(" ")
    assert scheme == "AgentAssertion"
    said = json.loads(base64.urlsafe_b64decode(assertion + "=" * (-len(assertion) % 4)))
    assert list(said) == ["agent_runtime_id", "signature", "task_id", "timestamp"]
    assert said["timestamp"] == "1970-01-01T00:16:40Z"
    assert verify(said, "runtime-1:task-1:{timestamp}")
    assert found == {"chatgpt-account-id": "account-1", "x-openai-fedramp": "true"}


def verify(said, text: str) -> bool:
    message = text.format(timestamp=said["timestamp"]).encode()
    AGENT.public_key().verify(base64.b64decode(said["signature"]), message)
    return True


@requirement("remote/auth:agent-identity")
@pytest.mark.parametrize(
    ("changes", "kid"),
    [({"iss": "x"}, "key-1"), ({"aud": "x"}, "key-1"), ({"exp": 1}, "key-1"), ({}, "key-2")],
)
async def test_an_agent_identity_that_does_not_verify_is_refused(http, changes, kid):
    async def answer(_request, line):
        await line.answer(200, keys(kid))

    async with target(answer) as service:
        environ = {
            "CODEX_ACCESS_TOKEN": identity(**changes),
            "CODEX_AGENT_IDENTITY_JWKS_BASE_URL": service.url,
        }
        with pytest.raises(ConfigurationError):
            await find_credentials(environ, http=http, uses_agent_identity=True)
        assert [request.path for request in service.received] == ["/agent-identities/jwks"]
        await http.close()


@requirement("remote/auth:agent-identity")
async def test_a_forged_agent_identity_is_refused(http):
    async def answer(_request, line):
        await line.answer(200, keys())

    head, _, rest = identity().partition(".")
    body = base64url(
        json.dumps({**json_web_tokens.claims(identity()), "account_id": "other"}).encode()
    )
    async with target(answer) as service:
        environ = {
            "CODEX_ACCESS_TOKEN": f"{head}.{body}.{rest.partition('.')[2]}",
            "CODEX_AGENT_IDENTITY_JWKS_BASE_URL": service.url,
        }
        with pytest.raises(ConfigurationError, match="signature"):
            await find_credentials(environ, http=http, uses_agent_identity=True)
        await http.close()


# The pipe.


def line(**changes: object) -> bytes:
    said = {"version": 1, "environment_id": "env-1", "token": "t1", "expires_at": 2000}
    return json.dumps({**said, **changes}).encode() + b"\n"


@requirement("remote/auth:pipe")
async def test_a_piped_token_replaces_the_one_before():
    now = 1000.0
    pipe = PipedCredential("env-1", now=lambda: now)
    with pytest.raises(CredentialExpired):
        pipe.headers()
    pipe.feed(line()[:-1])
    with pytest.raises(CredentialExpired):
        pipe.headers()
    pipe.feed(b"\n" + line(token="t2", expires_at=3000)[:10])
    await pipe.wait_first()
    assert pipe.headers() == {"authorization": "Bearer t1"}
    pipe.feed(line(token="t2", expires_at=3000)[10:])
    assert pipe.headers() == {"authorization": "Bearer t2"}
    now = 3000.0
    with pytest.raises(CredentialExpired):
        pipe.headers()
    pipe.end()
    await pipe.wait_over()
    assert "t2" not in repr(pipe)


@requirement("remote/auth:pipe")
@pytest.mark.parametrize(
    "bad",
    [
        b"{}\n",
        b"s3cret\n",
        line(version=2),
        line(environment_id="env-2"),
        line(token=""),
        line(token="s3cret x"),
        line(token="s3cret\n"),
        line(expires_at=-1),
        line(expires_at="2000"),
        line(expires_at=1000),
        line(more=1),
        b"x" * 100_000,
    ],
)
async def test_a_wrong_first_line_is_refused_without_its_words(bad):
    pipe = PipedCredential(" env-1 ", now=lambda: 1000.0)
    pipe.feed(bad)
    with pytest.raises(ConfigurationError) as caught:
        await pipe.wait_first()
    assert "s3cret" not in str(caught.value)


@requirement("remote/auth:pipe")
async def test_a_wrong_later_line_and_an_early_end_are_errors():
    pipe = PipedCredential("env-1", now=time.time)
    pipe.feed(line(expires_at=9_000_000_000) + b"nonsense\n")
    await pipe.wait_first()
    with pytest.raises(ConfigurationError):
        await asyncio.wait_for(pipe.wait_over(), 60)
    early = PipedCredential("env-1", now=time.time)
    early.end()
    with pytest.raises(ConfigurationError):
        await early.wait_first()
