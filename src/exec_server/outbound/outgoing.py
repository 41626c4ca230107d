"""Requests to targets: checked before they are sent, and changed by redirects; no I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exec_server.errors import InternalError, InvalidParams
from exec_server.outbound import url as urls
from exec_server.outbound.url import Url
from exec_server.protocol.http import RequestHeader, RequestParams

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

# Credentials of the server itself. No client may have them sent; the case is ignored.
_WITHHELD_VARIABLES = frozenset(
    name.casefold()
    for name in (
        "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
        "OPENAI_FEDERATION_RULE_ID",
        "OPENAI_IDENTITY_TOKEN_FILE",
        "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
        "OPENAI_API_KEY",
        "CODEX_API_KEY",
        "CODEX_ACCESS_TOKEN",
        "CODEX_CONNECTORS_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
    )
)

MAX_REDIRECTS = 10
_BECOMES_GET = {301, 302, 303}
_REDIRECTS = {301, 302, 303, 307, 308}
_OF_THE_BODY = {"content-type", "content-length", "content-encoding", "transfer-encoding"}
_OF_THE_ORIGIN = {
    "authorization",
    "cookie",
    "cookie2",
    "proxy-authorization",
    "www-authenticate",
}


class OutgoingRequest(NamedTuple):
    """One request to a target; header names are in lower case."""

    method: str
    # It has no credentials; these are in the headers.
    url: Url
    headers: Sequence[tuple[str, str]]
    body: bytes | None
    # Those of the headers whose values have a variable of the server's environment in them. They
    # are credentials, whatever their names: they stay with their origin.
    from_environment: frozenset[tuple[str, str]] = frozenset()

    def has(self, name: str) -> bool:
        return any(each == name for each, _ in self.headers)

    def __repr__(self) -> str:
        return f"OutgoingRequest({self.method} {self.url.root})"


def prepare(params: RequestParams, environ: Mapping[str, str]) -> OutgoingRequest:
    """Return the request that *params* ask for. Raises InvalidParams for the first mistake."""
    if not _TOKEN.fullmatch(params.method):
        raise InvalidParams("http/request method is invalid: invalid HTTP method")
    url = _target(params.url)
    headers = [_header(header, environ) for header in params.headers]
    from_environment = frozenset(
        pair
        for header, pair in zip(params.headers, headers, strict=True)
        if header.value_env_var is not None
    )
    names = {name for name, _ in headers}
    credentials = url.credentials()
    if credentials is not None and "authorization" not in names:
        headers.append(("authorization", basic(*credentials)))
    if "accept" not in names:
        headers.append(("accept", "*/*"))
    body = params.body_base64.data if params.body_base64 is not None else b""
    return OutgoingRequest(
        params.method, url.without_credentials(), grouped(headers), body or None, from_environment
    )


def basic(username: bytes, password: bytes) -> str:
    """Return the value of a header for Basic authentication."""
    return "Basic " + base64.b64encode(username + b":" + password).decode()


def grouped(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put headers of the same name together, at the place of the first."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    for header in headers:
        by_name.setdefault(header[0], []).append(header)
    return [header for group in by_name.values() for header in group]


def _target(text: str) -> Url:
    try:
        return urls.parse(text)
    except urls.UnsupportedScheme as exc:
        raise InvalidParams(
            f"http/request only supports http and https URLs, got {exc.scheme}"
        ) from None
    except urls.UrlError as exc:
        raise InvalidParams(f"http/request url is invalid: {exc}") from None


def _header(header: RequestHeader, environ: Mapping[str, str]) -> tuple[str, str]:
    if not _TOKEN.fullmatch(header.name):
        raise InvalidParams("http/request header name is invalid: invalid HTTP header name")
    value = header.value
    if header.value_env_var is not None:
        value += _variable(header.name, header.value_env_var, environ)
    if _CONTROL.search(value):
        raise InvalidParams(
            f"http/request header value is invalid for {header.name}: failed to parse header value"
        )
    return header.name.lower(), value


def _variable(header: str, name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if name.casefold() in _WITHHELD_VARIABLES:
        problem = "cannot use"
    elif value is None:
        problem = "requires"
    elif not value:
        problem = "requires a non-empty"
    else:
        return value
    raise InvalidParams(
        f"http/request header {header} {problem} executor environment variable {name}"
    )


def redirected(sent: OutgoingRequest, status: int, location: str | None) -> OutgoingRequest | None:
    """Return the next request after an answer; None if the answer is the last one.

    Raises InternalError for a redirect to a scheme other than http and https.
    """
    if status not in _REDIRECTS or location is None:
        return None
    try:
        url = urls.parse(location, base=sent.url)
    except urls.UnsupportedScheme as exc:
        raise InternalError(
            "http/request failed: redirect target uses unsupported URL scheme: " + exc.scheme
        ) from None
    except urls.UrlError:
        return None
    method, body, dropped = sent.method, sent.body, {"referer"}
    if _changes_method(status, sent.method):
        method, body = "HEAD" if sent.method == "HEAD" else "GET", None
        dropped |= _OF_THE_BODY
    secrets = sent.from_environment
    headers = list(sent.headers)
    if url.origin != sent.url.origin:
        # They do not come back, not even if the next redirect leads to the first origin.
        dropped |= _OF_THE_ORIGIN
        headers = [header for header in headers if header not in secrets]
        secrets = frozenset()
    headers = [header for header in headers if header[0] not in dropped]
    referer = _referer(sent.url, url)
    if referer is not None:
        headers.append(("referer", referer))
    # Credentials in the URL of a redirect are not used, as with the reference.
    return OutgoingRequest(method, url.without_credentials(), headers, body, secrets)


def _changes_method(status: int, method: str) -> bool:
    return status == 303 or (status in _BECOMES_GET and method == "POST")


def _referer(previous: Url, url: Url) -> str | None:
    if previous.origin == url.origin:
        return str(previous)
    is_downgrade = previous.scheme == "https" and url.scheme == "http"
    return None if is_downgrade else previous.root
