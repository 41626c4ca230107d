"""Finds the credential of an executor, by its command line and environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from exec_server.errors import ConfigurationError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.registry import REGISTRY_TOKEN_VARIABLE
from exec_server.remote.credentials import agent_identity, auth_json
from exec_server.remote.credentials.credentials import ApiKey, BearerToken, Credentials
from exec_server.remote.registry_http import Http

API_KEY_VARIABLE = "CODEX_API_KEY"
ACCESS_TOKEN_VARIABLE = "CODEX_ACCESS_TOKEN"
HOME_VARIABLE = "CODEX_HOME"
_PERSONAL_PREFIX = "at-"


async def find_credentials(
    environ: Mapping[str, str] = os.environ,
    *,
    http: Http,
    uses_agent_identity: bool = False,
    now: Callable[[], float] = time.time,
    limits: Limits = DEFAULT_LIMITS,
) -> Credentials:
    """Return the first credential found. Raises ConfigurationError or RegistryError if none is."""
    access_token = environ.get(ACCESS_TOKEN_VARIABLE, "").strip()
    if uses_agent_identity:
        if not access_token:
            raise ConfigurationError(f"--use-agent-identity-auth needs {ACCESS_TOKEN_VARIABLE}")
        return await agent_identity.load(access_token, environ, http=http, now=now, limits=limits)
    if token := environ.get(REGISTRY_TOKEN_VARIABLE, "").strip():
        return BearerToken(token)
    if key := environ.get(API_KEY_VARIABLE, "").strip():
        return ApiKey(key)
    if access_token:
        raise ConfigurationError(_refusal(access_token))
    found = await auth_json.load(_home(environ), environ, http=http, now=now, limits=limits)
    if found is None:
        raise ConfigurationError(
            "no credential for the registry: use --registry-token-file, set "
            f"{REGISTRY_TOKEN_VARIABLE} or {API_KEY_VARIABLE}, or log in"
        )
    return found


def _refusal(access_token: str) -> str:
    if access_token.startswith(_PERSONAL_PREFIX):
        return f"personal access tokens in {ACCESS_TOKEN_VARIABLE} are not supported"
    return f"the agent identity in {ACCESS_TOKEN_VARIABLE} needs --use-agent-identity-auth"


def _home(environ: Mapping[str, str]) -> Path:
    named = environ.get(HOME_VARIABLE)
    return Path(named) if named else Path(environ.get("HOME") or Path.home()) / ".codex"
