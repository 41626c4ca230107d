"""The credentials that Codex has stored in `auth.json`; they are renewed before they expire."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from exec_server.errors import ConfigurationError, RegistryError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.remote.credentials import json_web_tokens
from exec_server.remote.credentials.credentials import ApiKey, ChatGptTokens, Credentials
from exec_server.remote.registry_http import Http

FILE_NAME = "auth.json"
_FILE_BYTES = 1 << 20
_REFRESH_URL = "https://auth.openai.com/oauth/token"
_REFRESH_VARIABLE = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
_CLIENT_ID = "app_EMoamEEZ73f0CkXaXp7hrann"
_CLAIMS = "https://api.openai.com/auth"
# A token is renewed this long before it expires, or at this age if it does not say when.
_MARGIN_SECONDS = 5 * 60.0
_UNNAMED_SECONDS = 8 * 24 * 3600.0


class _Tokens(msgspec.Struct):
    id_token: str
    access_token: str
    refresh_token: str
    account_id: str | None = None


class _AuthFile(msgspec.Struct):
    auth_mode: str | None = None
    OPENAI_API_KEY: str | None = None
    tokens: _Tokens | None = None
    last_refresh: str | None = None


async def load(
    home: Path,
    environ: Mapping[str, str],
    *,
    http: Http,
    now: Callable[[], float],
    limits: Limits = DEFAULT_LIMITS,
) -> Credentials | None:
    """Return the credentials in the file in *home*; None if there are no usable ones.

    Tokens that are about to expire are renewed, and written to the file.
    """
    path = home / FILE_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES)
        content = msgspec.json.decode(raw)
        found = msgspec.convert(content, _AuthFile)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None
    if found.tokens is None or found.auth_mode == "apikey":
        return ApiKey(found.OPENAI_API_KEY) if found.OPENAI_API_KEY else None
    try:
        json_web_tokens.claims(found.tokens.id_token)
    except ConfigurationError:
        return None
    tokens = found.tokens
    if _is_due(tokens.access_token, found.last_refresh, now=now()):
        tokens = await _refresh(tokens, environ, http=http, limits=limits)
        _store(path, content, tokens, now=now())
    return _credentials(tokens)


def _credentials(tokens: _Tokens) -> Credentials:
    claimed = json_web_tokens.claims(tokens.id_token).get(_CLAIMS)
    is_fedramp = isinstance(claimed, dict) and claimed.get("chatgpt_account_is_fedramp") is True
    return ChatGptTokens(tokens.access_token, account_id=tokens.account_id, is_fedramp=is_fedramp)


def _is_due(access_token: str, last_refresh: str | None, *, now: float) -> bool:
    end = json_web_tokens.expiry(access_token)
    if end is not None:
        return end - now <= _MARGIN_SECONDS
    try:
        refreshed = datetime.fromisoformat((last_refresh or "").replace("Z", "+00:00"))
    except ValueError:
        return False
    return now - refreshed.timestamp() > _UNNAMED_SECONDS


async def _refresh(
    tokens: _Tokens, environ: Mapping[str, str], *, http: Http, limits: Limits
) -> _Tokens:
    body = {
        "client_id": _CLIENT_ID,
        "grant_type": "refresh_token",
        "refresh_reason": "proactive_expiry",
        "refresh_token": tokens.refresh_token,
    }
    url = environ.get(_REFRESH_VARIABLE) or _REFRESH_URL
    answer = await http.request("POST", url, headers={}, body=body, seconds=limits.registry_timeout)
    if not answer.is_success:
        raise RegistryError(
            f"the stored login could not be renewed: HTTP {answer.status}", status=answer.status
        )
    renewed = answer.json()
    if not isinstance(renewed, dict):
        raise RegistryError("the stored login could not be renewed: not a JSON object")
    kept: dict[str, Any] = msgspec.to_builtins(tokens)
    # A token that the answer leaves out stays as it is.
    kept |= {name: value for name, value in renewed.items() if name in kept and value}
    try:
        made = msgspec.convert(kept, _Tokens)
        json_web_tokens.claims(made.id_token)
    except (msgspec.ValidationError, ConfigurationError):
        raise RegistryError("the stored login could not be renewed: malformed tokens") from None
    return made


def _store(path: Path, content: dict[str, Any], tokens: _Tokens, *, now: float) -> None:
    """Replace the file, because the old refresh token cannot be used again."""
    stamp = datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z")
    content = {**content, "last_refresh": stamp}
    content["tokens"] = {**content["tokens"], **msgspec.to_builtins(tokens)}
    # mkstemp makes a file that only its owner can read.
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".auth-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=2))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
