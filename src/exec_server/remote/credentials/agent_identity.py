"""Agent Identity: a signed token whose own key signs every request to the registry."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from exec_server.errors import ConfigurationError, RegistryError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.remote.credentials import json_web_tokens
from exec_server.remote.credentials.credentials import account_headers
from exec_server.remote.registry_http import Http, RegistryAnswer
from exec_server.remote.retry_delays import registry_pause

_ISSUER = "https://chatgpt.com/codex-backend/agent-identity"
_AUDIENCE = "codex-app-server"
_JWKS_BASE = "https://chatgpt.com/backend-api"
_JWKS_VARIABLE = "CODEX_AGENT_IDENTITY_JWKS_BASE_URL"
_AUTHAPI_BASE = "https://auth.openai.com/api/accounts"
_AUTHAPI_VARIABLE = "CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL"
_HEADERS = {"originator": "codex_cli_rs", "user-agent": "codex_cli_rs"}
_ATTEMPTS = 3


class _IdentityClaims(msgspec.Struct):
    iss: str
    aud: str
    exp: float
    agent_runtime_id: str
    agent_private_key: str
    account_id: str
    chatgpt_account_is_fedramp: bool = False


class AgentIdentity:
    """A task of an agent. It signs each request with the agent's key."""

    def __init__(
        self, runtime_id: str, task_id: str, key: Any, headers: Mapping[str, str], now: Clock
    ) -> None:
        self._runtime_id = runtime_id
        self._task_id = task_id
        self._key = key
        self._headers = headers
        self._now = now

    def check_url(self, url: str) -> None:
        """Allow every host: an assertion is valid only for a short time."""

    def headers(self) -> Mapping[str, str]:
        timestamp = _stamp(self._now())
        signature = _sign(self._key, f"{self._runtime_id}:{self._task_id}:{timestamp}")
        assertion = msgspec.json.encode(
            {
                "agent_runtime_id": self._runtime_id,
                "signature": signature,
                "task_id": self._task_id,
                "timestamp": timestamp,
            }
        )
        return {"authorization": f"AgentAssertion {_base64url(assertion)}", **self._headers}

    def __repr__(self) -> str:
        return f"AgentIdentity({self._runtime_id!r})"


Clock = Callable[[], float]


async def load(
    token: str,
    environ: Mapping[str, str],
    *,
    http: Http,
    now: Clock,
    limits: Limits = DEFAULT_LIMITS,
) -> AgentIdentity:
    """Verify *token* and register a task. Raises ConfigurationError and RegistryError."""
    claims = await _verify(token, environ, http=http, now=now, limits=limits)
    key = _private_key(claims.agent_private_key)
    task_id = await _register(
        claims.agent_runtime_id, key, environ, http=http, now=now, limits=limits
    )
    headers = account_headers(claims.account_id, is_fedramp=claims.chatgpt_account_is_fedramp)
    return AgentIdentity(claims.agent_runtime_id, task_id, key, headers, now)


async def _verify(
    token: str, environ: Mapping[str, str], *, http: Http, now: Clock, limits: Limits
) -> _IdentityClaims:
    # A text that is not a token is refused before anything is sent.
    json_web_tokens.claims(token)
    base = (environ.get(_JWKS_VARIABLE) or _JWKS_BASE).rstrip("/")
    prefix = "/wham" if "/backend-api" in base else ""
    answer = await http.request(
        "GET",
        f"{base}{prefix}/agent-identities/jwks",
        headers=_HEADERS,
        seconds=limits.registry_timeout,
    )
    if not answer.is_success:
        raise RegistryError(
            f"the keys of agent identities could not be read: HTTP {answer.status}",
            status=answer.status,
        )
    try:
        claims = msgspec.convert(
            json_web_tokens.verified_claims(token, answer.json()), _IdentityClaims
        )
    except msgspec.ValidationError as exc:
        raise ConfigurationError(f"the agent identity is malformed: {exc}") from None
    if claims.iss != _ISSUER or claims.aud != _AUDIENCE:
        raise ConfigurationError("the agent identity has another issuer or audience")
    if claims.exp <= now():
        raise ConfigurationError("the agent identity has expired")
    return claims


def _private_key(text: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        key = load_der_private_key(base64.b64decode(text), password=None)
    except (ValueError, TypeError):
        raise ConfigurationError("the key of the agent identity is malformed") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError("the key of the agent identity is not an Ed25519 key")
    return key


async def _register(
    runtime_id: str, key: Any, environ: Mapping[str, str], *, http: Http, now: Clock, limits: Limits
) -> str:
    base = (environ.get(_AUTHAPI_VARIABLE) or _AUTHAPI_BASE).rstrip("/")
    url = f"{base}/v1/agent/{runtime_id}/task/register"
    for attempt in range(_ATTEMPTS):
        timestamp = _stamp(now())
        body = {"timestamp": timestamp, "signature": _sign(key, f"{runtime_id}:{timestamp}")}
        answer = await http.request(
            "POST", url, headers=_HEADERS, body=body, seconds=limits.registry_timeout
        )
        if answer.is_success:
            return _task_id(answer)
        if answer.status != 429 and answer.status < 500:
            break
        if attempt + 1 < _ATTEMPTS:
            await asyncio.sleep(registry_pause(attempt, random=random.random, limits=limits))
    raise RegistryError(
        f"the task of the agent was not registered: HTTP {answer.status}", status=answer.status
    )


def _task_id(answer: RegistryAnswer) -> str:
    decoded = answer.json()
    if isinstance(decoded, dict):
        task_id = decoded.get("task_id") or decoded.get("taskId")
        if isinstance(task_id, str) and task_id:
            return task_id
        if "encrypted_task_id" in decoded:
            raise ConfigurationError("sealed task ids are not supported")
    raise RegistryError("the task of the agent was not registered: no task id", status=200)


def _sign(key: Any, text: str) -> str:
    return base64.b64encode(key.sign(text.encode())).decode()


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
