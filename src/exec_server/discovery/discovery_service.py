"""Reads the executor's own configuration and capabilities, in threads or in confined helpers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from exec_server.discovery import config_files, installed, roots
from exec_server.discovery.homes import Homes, find_homes
from exec_server.errors import FloorRefused, InvalidParams, InvalidRequest, RpcError
from exec_server.limits import Limits
from exec_server.protocol import environment
from exec_server.protocol.method import Encoded
from exec_server.protocol.sandbox import SandboxContext


class ConfinedScans(Protocol):
    """Scans in a sandbox; their answers are JSON."""

    async def discover_root(self, root: environment.CapabilityRoot, limits: Limits) -> Encoded: ...

    async def discover_installed(self, homes: Homes, limits: Limits) -> Encoded: ...


# Returns None if nothing is hidden. Raises RpcError for a sandbox that makes no sense.
Confine = Callable[[SandboxContext | None], ConfinedScans | None]


class Discovery:
    """The discovery of one server. Every answer is read from the files anew."""

    def __init__(self, environ: Mapping[str, str], *, limits: Limits) -> None:
        self._environ = environ
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.capability_roots_at_once)

    async def read_config(
        self, params: environment.ConfigReadParams
    ) -> environment.ConfigReadResult:
        async with self._slots:
            return await asyncio.to_thread(
                config_files.read, params, self._environ, limits=self._limits
            )

    async def discover_roots(
        self, params: environment.DiscoverRootsParams, confine: Confine
    ) -> Encoded:
        limit = self._limits.capability_roots
        if len(params.roots) > limit:
            raise InvalidRequest(f"capability root discovery accepts at most {limit} roots")
        found = await asyncio.gather(*(self._discover_root(each, confine) for each in params.roots))
        parts: list[bytes] = []
        for each in found:
            parts += (b",", *each.parts)
        return Encoded((b'{"roots":[', *parts[1:], b"]}"))

    async def _discover_root(self, root: environment.CapabilityRoot, confine: Confine) -> Encoded:
        async with self._slots:
            try:
                confined = confine(root.sandbox)
                if confined is not None:
                    return await confined.discover_root(root, self._limits)
            except (InvalidParams, FloorRefused):
                raise
            except RpcError as exc:
                return _encoded(roots.not_inspected(root, exc))
            return await asyncio.to_thread(_discovered, root, self._limits)

    async def discover(
        self, params: environment.DiscoverParams, confine: Confine
    ) -> environment.CapabilitiesResult | Encoded:
        confined = confine(params.sandbox)
        async with self._slots:
            homes = await asyncio.to_thread(find_homes, self._environ)
            if confined is not None:
                return await confined.discover_installed(homes, self._limits)
            return await asyncio.to_thread(installed.discover, homes, limits=self._limits)


def _discovered(root: environment.CapabilityRoot, limits: Limits) -> Encoded:
    return _encoded(roots.discover(root, limits))


def _encoded(root: environment.DiscoveredRoot) -> Encoded:
    return Encoded((msgspec.json.encode(root),))
