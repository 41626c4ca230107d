"""Finds the proxy for a target in the environment of the server; no I/O."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping
from typing import NamedTuple

from exec_server.outbound import url as urls
from exec_server.outbound.outgoing import basic
from exec_server.outbound.url import Url

logger = logging.getLogger(__name__)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxy(NamedTuple):
    """A proxy for HTTP."""

    # It has no credentials; these are in `authorization`.
    url: Url
    authorization: str | None

    def __repr__(self) -> str:
        return f"Proxy({self.url})"


class Proxies:
    """The variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, as they were at the start."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        everywhere = _proxy(environ, "ALL_PROXY")
        # In a CGI program a client could set HTTP_PROXY by a header called Proxy.
        is_cgi = "REQUEST_METHOD" in environ
        self._by_scheme = {
            "http": (None if is_cgi else _proxy(environ, "HTTP_PROXY")) or everywhere,
            "https": _proxy(environ, "HTTPS_PROXY") or everywhere,
        }
        self._exceptions = _Exceptions(_either(environ, "NO_PROXY"))

    def for_url(self, url: Url) -> Proxy | None:
        proxy = self._by_scheme[url.scheme]
        return None if proxy is None or self._exceptions.cover(url.host) else proxy


class _Exceptions:
    """Hosts that are reached without a proxy: names with their subdomains, addresses, networks."""

    def __init__(self, text: str) -> None:
        self._networks: list[_Network] = []
        self._names: list[str] = []
        for entry in filter(None, (part.strip() for part in text.split(","))):
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.append(entry.lower().removeprefix("."))

    def cover(self, host: str) -> bool:
        address = _address(host)
        if address is not None:
            return any(address in network for network in self._networks)
        return any(name == "*" or host == name or host.endswith(f".{name}") for name in self._names)


def _either(environ: Mapping[str, str], name: str) -> str:
    """Return the variable in upper case, or else the one in lower case."""
    return environ.get(name) or environ.get(name.lower()) or ""


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _proxy(environ: Mapping[str, str], variable: str) -> Proxy | None:
    """Return the proxy that a variable names; an unusable one is ignored, as in the reference."""
    text = _either(environ, variable)
    if not text:
        return None
    try:
        url = urls.parse(text if "://" in text else f"http://{text}")
    except urls.UrlError:
        logger.warning("%s is ignored: it does not name an http or https proxy", variable)
        return None
    credentials = url.credentials()
    authorization = basic(*credentials) if credentials is not None else None
    return Proxy(url.without_credentials(), authorization)
