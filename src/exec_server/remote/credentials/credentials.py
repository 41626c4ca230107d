"""Credentials for the registry: the headers of each request, and the hosts they may go to."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from exec_server.errors import ConfigurationError

_API_KEY_DOMAINS = ("openai.com", "openai.org")


class CredentialExpired(ConfigurationError):
    """The credential has expired, so the registry is not asked."""


class Credentials(Protocol):
    """Proves the identity of the sender. Its repr shows no secret."""

    def check_url(self, url: str) -> None:
        """Raise ConfigurationError if the credential must not be sent to this registry."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers of the next request. Raises CredentialExpired."""


class _Secret:
    """A token of visible ASCII characters, which is not printed."""

    def __init__(self, token: str) -> None:
        self._token = _checked(token)

    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class ApiKey(_Secret):
    """A key that is sent only to its issuer and to this machine."""

    def check_url(self, url: str) -> None:
        parts = _split(url)
        host = parts.hostname or ""
        is_issuer = parts.scheme == "https" and any(
            host == domain or host.endswith(f".{domain}") for domain in _API_KEY_DOMAINS
        )
        if not is_issuer and not is_loopback(url):
            raise ConfigurationError(
                f"an API key is not sent to `{parts.scheme}://{host}`: only to https on "
                f"{' and '.join(_API_KEY_DOMAINS)}, and to loopback addresses"
            )


class BearerToken(_Secret):
    """A token that was made for the registry it is sent to."""

    def check_url(self, url: str) -> None:
        check_confidential(url, "a registry token")


class HarnessToken(_Secret):
    """The token of a harness for its registry, on any host; a function is called for each use."""

    def __init__(self, token: str | Callable[[], str], *, account_id: str | None = None) -> None:
        super().__init__(token() if callable(token) else token)
        self._source = token if callable(token) else None
        self._account_id = account_id

    def check_url(self, url: str) -> None:
        """Allow every host: the token and the registry are configured together."""

    def headers(self) -> Mapping[str, str]:
        if self._source is not None:
            self._token = _checked(self._source())
        return {**super().headers(), **account_headers(self._account_id)}


class ChatGptTokens(_Secret):
    """The tokens of a ChatGPT account, as they were at the start."""

    def __init__(self, token: str, *, account_id: str | None, is_fedramp: bool = False) -> None:
        super().__init__(token)
        self._account_id = account_id
        self._is_fedramp = is_fedramp

    def check_url(self, url: str) -> None:
        """Allow every host, as the reference does; it restricts API keys alone."""

    def headers(self) -> Mapping[str, str]:
        return {
            **super().headers(),
            **account_headers(self._account_id, is_fedramp=self._is_fedramp),
        }


def _checked(token: str) -> str:
    if not token or not all("!" <= c <= "~" for c in token):
        raise ConfigurationError("a token is visible ASCII without blanks")
    return token


def account_headers(account_id: str | None, *, is_fedramp: bool = False) -> dict[str, str]:
    headers = {} if account_id is None else {"chatgpt-account-id": account_id}
    if is_fedramp:
        headers["x-openai-fedramp"] = "true"
    return headers


def check_confidential(url: str, what: str) -> None:
    """Raise ConfigurationError unless *url* is https or a loopback address."""
    parts = _split(url)
    if parts.scheme != "https" and not is_loopback(url):
        raise ConfigurationError(
            f"{what} is not sent to `{parts.scheme}://{parts.hostname}`: it needs https, or a "
            "loopback address"
        )


def is_loopback(url: str) -> bool:
    """True if an http or https URL names this machine, by `localhost` or a loopback address."""
    parts = _split(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https"):
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        raise ConfigurationError("the registry's URL is malformed") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("the registry's URL begins with https:// or http:// and a host")
    return parts
