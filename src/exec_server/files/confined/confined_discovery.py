"""The discovery of capabilities in a sandbox: a confined helper does the scans."""

from __future__ import annotations

from exec_server.discovery.homes import Homes
from exec_server.files.confined.helper_calls import ConfinedCalls
from exec_server.files.confined.work import DISCOVER_INSTALLED, DISCOVER_ROOT
from exec_server.limits import Limits
from exec_server.protocol.environment import CapabilityRoot
from exec_server.protocol.method import Encoded


class ConfinedDiscovery(ConfinedCalls):
    """The scans under one policy."""

    async def discover_root(self, root: CapabilityRoot, limits: Limits) -> Encoded:
        """Return a DiscoveredRoot. Raises RpcError if the sandbox itself fails."""
        args = root.id, root.path.text, _numbers(limits)
        return await self._call(DISCOVER_ROOT, args)

    async def discover_installed(self, homes: Homes, limits: Limits) -> Encoded:
        """Return a CapabilitiesResult. Raises RpcError if the sandbox itself fails."""
        return await self._call(DISCOVER_INSTALLED, (homes, _numbers(limits)))


def _numbers(limits: Limits) -> dict[str, int]:
    """The limits of a scan."""
    names = (name for name in limits.__struct_fields__ if name.startswith("capability_"))
    return {name: getattr(limits, name) for name in names}
