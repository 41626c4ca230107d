"""What a server offers besides processes, each part loaded when it is first needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import structs

from exec_server import host
from exec_server.errors import InternalError
from exec_server.limits import Limits
from exec_server.process.echo_first import EchoFirst
from exec_server.process.spawn import Spawner
from exec_server.protocol.environment import EnvironmentInfo
from exec_server.server.capabilities import CAPABILITIES
from exec_server.server.sandbox_info import SandboxTrial
from exec_server.version import VERSION

if TYPE_CHECKING:
    from exec_server.discovery.discovery_service import Discovery
    from exec_server.files.file_service import FileService
    from exec_server.outbound.exchanges import Outbound
    from exec_server.screens.screens import Screens
    from exec_server.server.kept_sessions import KeptSessions
    from exec_server.server.server_audit import ServerAudit
    from exec_server.server.session import Session
    from exec_server.server.sharing.process_watches import Sharing
    from exec_server.server.streams.session_streams import SessionStreams


class LateServices:
    """The keeper, and the services of a server that are made when a request needs them."""

    def __init__(
        self, limits: Limits, audit: ServerAudit | None, stream_allow: Sequence[str]
    ) -> None:
        self.limits = limits
        self.audit = audit
        self.jobs: KeptSessions | None = None
        self.server_env: Mapping[str, str] = dict(os.environ)
        self._loop = asyncio.get_running_loop()
        self._spawner = Spawner(
            orphan_grace=limits.orphan_grace, child_descriptors=limits.child_descriptors
        )
        # Shared by sessions and files: what one client types comes before bulk of others.
        self.echo_first = EchoFirst()
        self._http_loading: asyncio.Future[ModuleType] | None = None
        self._sandbox_trial = SandboxTrial()
        self._stream_allow = tuple(stream_allow)
        if stream_allow:
            # A wrong rule is an error now, and not at the first stream.
            _ = self._streams

    @property
    def sessions(self) -> Collection[Session]:
        """All sessions, attached or detached."""
        raise NotImplementedError

    @property
    def spawner(self) -> Spawner:
        return self._spawner

    def prepare(self) -> None:
        """Start the keeper before the first process needs it."""
        # If this fails, the start of the first process reports the error.
        with contextlib.suppress(InternalError):
            self._spawner.start()

    @cached_property
    def environment_info(self) -> EnvironmentInfo:
        """Facts about this machine that do not change while the server runs."""
        capabilities = {
            **CAPABILITIES,
            "processDurable": self.jobs is not None,
            "processUser": os.geteuid() == 0,
        }
        return host.environment_info(version=VERSION, capabilities=capabilities)

    async def full_environment_info(self) -> EnvironmentInfo:
        """The same facts with the sandbox backends, which have to be tried out once."""
        found = await self._sandbox_trial.found()
        self.environment_info = structs.replace(self.environment_info, sandbox=found)
        return self.environment_info

    @cached_property
    def files(self) -> FileService:
        """The files, loaded with the first file request, so that the server starts sooner."""
        from exec_server.files.file_admission import FileAdmission
        from exec_server.files.file_service import FileService
        from exec_server.server.file_agents import FileAgents
        from exec_server.server.file_helpers import FileHelpers

        helpers = FileHelpers(self._spawner, self.server_env)
        admission = FileAdmission(self.server_env)
        agents = FileAgents(self._spawner, self.server_env)
        return FileService(
            self.limits,
            admission,
            helpers.start,
            helpers.starter_of,
            agents.start,
            rests=self.echo_first,
        )

    @property
    def http_loaded(self) -> asyncio.Future[ModuleType]:
        """A future that is done when `outbound` is loaded. The first use starts to load it.

        Loading the HTTP client takes 0.1 s, so a thread does it. After a failure, such as a lack of
        descriptors, the next use loads it again.
        """
        loading = self._http_loading
        if loading is None or (loading.done() and loading.exception() is not None):
            name = "exec_server.outbound.exchanges"
            loading = self._loop.run_in_executor(None, import_module, name)
            self._http_loading = loading
        return loading

    @property
    def is_http_loaded(self) -> bool:
        loading = self._http_loading
        return loading is not None and loading.done() and loading.exception() is None

    @cached_property
    def outbound(self) -> Outbound:
        """The HTTP client, made for the first request."""
        from exec_server.outbound.exchanges import Outbound

        return Outbound(self.server_env, limits=self.limits)

    @cached_property
    def sharing(self) -> Sharing:
        """The watches on processes, loaded with the first one."""
        from exec_server.server.sharing.process_watches import Sharing
        from exec_server.server.sharing.screen_pictures import ScreenPictures

        return Sharing(lambda: self.sessions, ScreenPictures(lambda: self.screens))

    @cached_property
    def discovery(self) -> Discovery:
        from exec_server.discovery.discovery_service import Discovery

        return Discovery(
            self.server_env,
            limits=self.limits,
        )

    @cached_property
    def screens(self) -> Screens:
        """The models of terminals, made for the first one that is asked for."""
        from exec_server.screens.screens import Screens

        return Screens(self._spawner)

    @cached_property
    def _streams(self) -> SessionStreams:
        from exec_server.server.streams.session_streams import SessionStreams

        found = SessionStreams(self._stream_allow, limits=self.limits, audit=self.audit)
        self.echo_first.on_small_input = found.pace.talked
        return found
