"""The hosts that a principal's commands and its `http/request` may reach."""

from __future__ import annotations

from collections.abc import Callable

from exec_server.errors import FloorRefused
from exec_server.network.hosts import HostRefusal, normalise_authority_host
from exec_server.network.rules import HostPatterns
from exec_server.printable import printable
from exec_server.protocol.network import NetworkProxy, ProxyConfig


class HostFloor:
    """The patterns of `networkProxy`, such as ``*.example.com``; no pattern means no host."""

    def __init__(self, hosts: tuple[str, ...], *, principal: str) -> None:
        self._hosts = hosts
        self._patterns = HostPatterns(hosts)
        self.words = f"the hosts of principal `{principal}` are {', '.join(hosts) or 'none'}"
        # A name that a pattern lets through may lead to an address of this machine.
        self.allows_local = not any("*" in host or "?" in host for host in hosts)

    def check(self, authority: str) -> None:
        """Raise FloorRefused unless *authority*, the host of a URL, may be reached."""
        host = normalise_authority_host(authority)
        if isinstance(host, HostRefusal) or not self._patterns.match(host):
            raise FloorRefused(f"{self.words}; {printable(authority)} is not one of them")

    def told(self, refused: Callable[[str], None]) -> Callable[[str], bool]:
        """A judge for the managed network; it calls *refused* with the rule if the answer is no."""

        def allows(authority: str) -> bool:
            try:
                self.check(authority)
            except FloorRefused as exc:
                refused(exc.message)
                return False
            return True

        return allows

    def proxy(self, asked: NetworkProxy | None) -> NetworkProxy:
        """The managed network of a command: as asked for, or one that allows these hosts."""
        if asked is None:
            return NetworkProxy(
                ProxyConfig(
                    enabled=True,
                    enable_socks5=True,
                    enable_socks5_udp=False,
                    allow_upstream_proxy=True,
                    dangerously_allow_all_unix_sockets=False,
                    mode="full",
                    allow_local_binding=self.allows_local,
                    domains=dict.fromkeys(self._hosts, "allow"),
                )
            )
        if not self.allows_local:
            asked.proxy.allow_local_binding = False
        return asked
