"""Makes the sessions of a server, with their processes, networks and recordings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from exec_server import host
from exec_server.process.child import Child
from exec_server.process.process_table import ProcessTable
from exec_server.process.start_terms import StartTerms
from exec_server.protocol.process import StartParams
from exec_server.server.late_services import LateServices
from exec_server.server.session import Session
from exec_server.state.attachment import SessionId
from exec_server.state.retention import RetentionBudget
from exec_server.state.window import WindowBudget

if TYPE_CHECKING:
    from exec_server.network.bridge import Bridge
    from exec_server.network.proxy import ManagedProxy
    from exec_server.recording.recorder import TerminalRecorder


class SessionFactory:
    """Makes sessions of *server*; what they share in memory and bandwidth is theirs together.

    Processes reach private addresses through their proxies if *reaches_private*.
    """

    def __init__(
        self, server: LateServices, *, recorder: TerminalRecorder | None, reaches_private: bool
    ) -> None:
        self._server = server
        self._recorder = recorder
        self._reaches_private = reaches_private
        limits = server.limits
        self.windows = WindowBudget(
            total_bytes=limits.flow_total_bytes,
            max_window=limits.max_flow_window,
            free_bytes=limits.retained_bytes,
        )
        self._retention = RetentionBudget(
            total_bytes=limits.retained_total_bytes, min_share=limits.retained_min_share
        )
        self._shell = host.tty_shell()

    def make(
        self,
        session_id: SessionId,
        mark: int | None = None,
        retention: RetentionBudget | None = None,
    ) -> Session:
        """A session; *mark* is that of an earlier server, which had it before."""
        server = self._server
        shared = self._retention if retention is None else retention
        session = Session(
            session_id,
            limits=server.limits,
            make_processes=partial(self._make_processes, retention=shared),
        )
        if server.jobs is not None:
            session.jobs = server.jobs.jobs_of(session, mark)
        return session

    def _make_processes(self, session: Session, *, retention: RetentionBudget) -> ProcessTable:
        server = self._server
        processes = ProcessTable(
            spawner=server.spawner,
            outlet=session,
            limits=server.limits,
            login_shell=self._shell,
            server_env=server.server_env,
            windows=self.windows,
            retention=retention,
            echo_first=server.echo_first,
            open_network=partial(self._open_network, session),
            open_bridge=self._open_bridge,
            durable=session.jobs,
        )
        processes.on_screen = lambda child: server.screens.watch(child)
        if server.audit is not None:
            processes.on_exit = partial(server.audit.ended, session)
        if self._recorder is not None:
            processes.on_start = partial(self._record, self._recorder, session)
        return processes

    def _record(
        self, recorder: TerminalRecorder, session: Session, child: Child, params: StartParams | None
    ) -> None:
        from exec_server.server.recorded_terminals import record_terminal

        record_terminal(recorder, self._server.limits, session.owner, child, params)

    def _open_network(
        self, session: Session, params: StartParams, terms: StartTerms
    ) -> ManagedProxy:
        """The proxy for a new process; it does not listen yet."""
        from exec_server.network.proxy import ManagedProxy

        assert params.network_proxy is not None
        return ManagedProxy(
            params.process_id,
            params.network_proxy,
            client=session,
            limits=self._server.limits,
            server_env=self._server.server_env,
            reaches_private=self._reaches_private,
            allows_host=terms.allows_host,
        )

    def _open_bridge(self, proxy: ManagedProxy | None, env: Mapping[str, str]) -> Bridge | None:
        """The bridge of a sandboxed process to *proxy*, or to the proxies in *env*, if any."""
        from exec_server.network.bridge import Bridge
        from exec_server.network.proxy_environment import NoProxy

        try:
            return Bridge(proxy, env, limits=self._server.limits)
        except NoProxy:
            return None
