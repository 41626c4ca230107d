"""`client.discovery`: the configuration, skills and plugins on the server's machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from exec_server.protocol import environment
from exec_server.protocol.paths import PathUri
from exec_server.protocol.sandbox import Sandboxed, as_context

if TYPE_CHECKING:
    from exec_server.client.client_session import ClientSession, StrPath

KeyPaths = Sequence[Sequence[str]]


class RemoteDiscovery:
    """Reads the configuration of programs on the server's machine."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def read_config(
        self,
        config_paths: KeyPaths,
        requirements_paths: KeyPaths = (),
        *,
        cwd: StrPath | None = None,
    ) -> environment.ConfigReadResult:
        """Parts of the configuration that applies in *cwd*; each path is a list of keys."""
        params = environment.ConfigReadParams(
            PathUri(await self._session.resolve(cwd)),
            [list(path) for path in config_paths],
            [list(path) for path in requirements_paths],
        )
        return await self._session.call(environment.READ_CONFIG, params)

    async def discover(
        self, *, cwd: StrPath | None = None, sandbox: Sandboxed = None
    ) -> environment.CapabilitiesResult:
        """The skills and plugins that are installed, as far as *sandbox* makes them visible."""
        path = PathUri(await self._session.resolve(cwd))
        params = environment.DiscoverParams(path, as_context(sandbox, cwd=path.text))
        return await self._session.call(environment.DISCOVER, params)

    async def discover_roots(
        self, roots: Mapping[str, StrPath], *, sandbox: Sandboxed = None
    ) -> dict[str, environment.DiscoveredRoot]:
        """The skills and plugins below directories, by the names that *roots* gives them."""
        context = as_context(sandbox)
        params = environment.DiscoverRootsParams(
            [
                environment.CapabilityRoot(
                    name, PathUri(await self._session.resolve(path)), context
                )
                for name, path in roots.items()
            ]
        )
        result = await self._session.call(environment.DISCOVER_ROOTS, params)
        return {root.id: root for root in result.roots}
