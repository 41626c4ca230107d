"""The variables that point programs at a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

_HTTP = (
    "HTTP_PROXY HTTPS_PROXY http_proxy https_proxy WS_PROXY WSS_PROXY ws_proxy wss_proxy "
    "YARN_HTTP_PROXY YARN_HTTPS_PROXY npm_config_http_proxy npm_config_https_proxy "
    "npm_config_proxy NPM_CONFIG_HTTP_PROXY NPM_CONFIG_HTTPS_PROXY NPM_CONFIG_PROXY "
    "BUNDLE_HTTP_PROXY BUNDLE_HTTPS_PROXY PIP_PROXY DOCKER_HTTP_PROXY DOCKER_HTTPS_PROXY"
).split()
_ANY = "ALL_PROXY all_proxy FTP_PROXY ftp_proxy".split()
_NONE = "NO_PROXY no_proxy npm_config_noproxy NPM_CONFIG_NOPROXY BUNDLE_NO_PROXY".split()
_LOCAL = "localhost,127.0.0.1,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"

# Names count in upper and in lower case.
_NAMES = frozenset(name.upper() for name in (*_HTTP, *_ANY))
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_DEFAULT_PORTS = {
    "http": 80, "https": 443, "socks": 1080, "socks4": 1080, "socks4a": 1080, "socks5": 1080,
    "socks5h": 1080,
}  # fmt: skip


class Endpoint(NamedTuple):
    """A proxy on the loopback of the host."""

    host: str
    port: int


class NoProxy(Exception):
    """A process may reach only its proxy, but names none; the text is for the client."""


def variables(*, http_port: int, socks_port: int | None, allows_local: bool) -> dict[str, str]:
    """The variables for a process with a proxy of ours; they replace its own."""
    http = f"http://127.0.0.1:{http_port}"
    anything = http if socks_port is None else f"socks5h://127.0.0.1:{socks_port}"
    return {
        **dict.fromkeys(_HTTP, http),
        **dict.fromkeys(_ANY, anything),
        **dict.fromkeys(_NONE, _LOCAL if allows_local else ""),
        "CODEX_NETWORK_PROXY_ACTIVE": "1",
        "CODEX_NETWORK_ALLOW_LOCAL_BINDING": "1" if allows_local else "0",
        "ELECTRON_GET_USE_PROXY": "true",
        "NODE_USE_ENV_PROXY": "1",
    }


def named_proxies(env: Mapping[str, str]) -> dict[str, Endpoint]:
    """The variables of *env* that name a proxy on the loopback. Raises NoProxy if there is none."""
    named = {name: value for name, value in env.items() if name.upper() in _NAMES and value.strip()}
    if not named:
        raise NoProxy("managed proxy mode requires proxy environment variables")
    found = {name: _endpoint(value.strip()) for name, value in named.items()}
    usable = {name: endpoint for name, endpoint in found.items() if endpoint is not None}
    if not usable:
        raise NoProxy("managed proxy mode requires parseable loopback proxy endpoints")
    return usable


def moved(value: str, port: int) -> str:
    """The proxy *value* with another port of 127.0.0.1; the rest of it stays the same."""
    text = value.strip()
    scheme, mark, rest = text.rpartition("://") if "://" in text else ("", "", text)
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    tail = rest[len(authority) :]
    userinfo, at, _ = authority.rpartition("@")
    return f"{scheme}{mark}{userinfo}{at}127.0.0.1:{port}{tail}"


def _endpoint(value: str) -> Endpoint | None:
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    default = _DEFAULT_PORTS.get(parts.scheme)
    if host not in _LOOPBACK or default is None or port == 0:
        return None
    return Endpoint(host, port or default)
