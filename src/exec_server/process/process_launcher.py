"""Start the programs of a session: check the request, prepare what it asks for, ask the keeper."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from exec_server.errors import InternalError, InvalidParams, RpcError
from exec_server.limits import Limits
from exec_server.process.child import Child
from exec_server.process.child_parts import Network
from exec_server.process.limiting.asked_limits import keeper_limits
from exec_server.process.shell_integration import integrated
from exec_server.process.shell_state import WantedSnapshot, wanted_snapshot
from exec_server.process.spawn import Launch, ProgramStarter, Spawned
from exec_server.process.start_terms import NO_TERMS, StartTerms
from exec_server.protocol.paths import to_native
from exec_server.protocol.process import StartParams
from exec_server.state.child_env import child_env

if TYPE_CHECKING:
    from exec_server.process.denial_watch import DenialWatch
    from exec_server.process.sandboxed_start import ConfinedStart
    from exec_server.process.snapshot import Snapshots

_NO_SANDBOX = "the process has no sandbox"

OpenNetwork = Callable[[StartParams, StartTerms], Network]
OpenBridge = Callable[[Any, Mapping[str, str]], Network | None]


class CheckedStart(msgspec.Struct, frozen=True):
    """A `process/start` whose parameters make sense on this machine; nothing is started yet."""

    params: StartParams
    cwd: bytes
    network: Network | None
    snapshot: WantedSnapshot | None
    limits: dict[str, Any] | None
    terms: StartTerms
    # What the request brings along of earlier grants.
    granted: dict[bytes, str]

    @property
    def is_confined(self) -> bool:
        return self.params.sandbox is not None or self.terms.floor is not None


class ProcessLauncher:
    """Starts programs for one session, with the network, sandbox and shell state they ask for."""

    def __init__(
        self,
        *,
        spawner: ProgramStarter,
        limits: Limits,
        login_shell: str,
        server_env: Mapping[str, str],
        open_network: OpenNetwork | None,
        open_bridge: OpenBridge | None,
    ) -> None:
        self._spawner = spawner
        self._limits = limits
        self._login_shell = login_shell
        self._server_env = server_env
        self._open_network = open_network
        self._open_bridge = open_bridge
        # What was granted to the session: paths, each with "write" or "read"; unix sockets and
        # hosts, each with its kind.
        self.granted: dict[bytes, str] = {}

    def check(self, params: StartParams, terms: StartTerms = NO_TERMS) -> CheckedStart:
        """Raise the RpcError of the first check that fails, in the reference's order."""
        # The shell of a durable process reads its startup files: snapshots end with the server. So
        # does the shell of another user, who cannot read the server's snapshots.
        has_snapshot = not params.durable and terms.account is None
        checked = CheckedStart(
            params,
            to_native(params.cwd),
            self._network(params, terms),
            wanted_snapshot(params, self._limits) if has_snapshot else None,
            keeper_limits(params.limits, self._limits),
            terms,
            self._given_grants(params),
        )
        if not params.argv:
            raise InvalidParams("argv must not be empty")
        return checked

    def spawn(
        self, checked: CheckedStart, child: Child, *, is_wanted: Callable[[], bool]
    ) -> asyncio.Future[Spawned]:
        """Start the program of *child*, which gets its network and its sandbox here.

        Preparing a sandbox or a shell's state may take a while; the program is not started if
        *is_wanted* says no by then. Raises RpcError when the start cannot even be tried.
        """
        params, terms, limits = checked.params, checked.terms, checked.limits
        network, snapshot = checked.network, checked.snapshot
        launch = self._launch(params, checked.cwd, terms)
        if limits is not None:
            launch = launch._replace(limits=limits)
            child.asked_limits = limits
        if checked.is_confined and params.enforce_managed_network and self._open_bridge:
            env = {os.fsdecode(name): os.fsdecode(value) for name, value in launch.env.items()}
            network = self._open_bridge(network, env)
        if network is not None:
            imposed = _encoded(network.listen())
            launch.env.update(imposed)
            snapshot = snapshot.keeping(imposed) if snapshot is not None else None
        child.network = network
        if params.denials:
            child.denials = self._watch(checked, child)
        try:
            if checked.is_confined:
                confined = self._confined(checked, launch, child, is_wanted)
                return self._begin(confined, launch, snapshot)
            if terms.account is not None:
                launch = launch._replace(fence=terms.account.around(None))
            if snapshot is None:
                return child.spawner.spawn(launch, child.reaped)
            return self._spawn_restored(launch, child, snapshot)
        except RpcError:
            child.close_network()
            if child.denials is not None:
                child.denials.close()
            raise

    def _watch(self, checked: CheckedStart, child: Child) -> DenialWatch:
        # This is loaded with the first start that asks for it.
        from exec_server.process.denial_watch import DenialWatch

        params, terms = checked.params, checked.terms
        hold = min((params.denial_hold_ms or 0) / 1000, self._limits.denial_hold_seconds)
        if terms.floor is not None:
            # Nothing is granted beyond a floor, so no call waits for it.
            hold = 0.0
        return DenialWatch(
            child.process_id,
            hold=hold,
            push=child.push,
            why_not=None if checked.is_confined else _NO_SANDBOX,
            file=child.new_record_file() if checked.is_confined else None,
            # A managed network is wider or narrower by its own rules.
            offers_network=terms.floor is None and not params.enforce_managed_network,
        )

    def is_host_granted(self, host: str, port: int) -> bool:
        """True if *host*, which no rule of a process allows, was granted to the session."""
        if not self.granted:
            return False
        from exec_server.process.host_denials import host_target

        return self.granted.get(host_target(host, port)) == "host"

    def close(self) -> None:
        """Forget the shell snapshots; a start that waits for one is given up."""
        if "_snapshots" in self.__dict__:
            self._snapshots.close()

    def _confined(
        self,
        checked: CheckedStart,
        launch: Launch,
        child: Child,
        is_wanted: Callable[[], bool],
    ) -> ConfinedStart:
        # The sandbox is loaded with the first start that asks for it.
        from exec_server.process.sandboxed_start import ConfinedStart

        child.sandbox = start = ConfinedStart(
            launch,
            checked.params.sandbox,
            is_proxied=checked.params.enforce_managed_network,
            terms=checked.terms,
            is_wanted=is_wanted,
            gate=child.network.hold(child.refuse) if child.network is not None else None,
            spawner=child.spawner,
            on_exit=child.reaped,
            denials=child.denials,
            # What was granted is no part of a floor.
            granted=() if checked.terms.floor is not None else self._granted_to(checked),
            learns=checked.params.learn and checked.terms.floor is None,
        )
        return start

    def _granted_to(self, checked: CheckedStart) -> tuple[tuple[bytes, str], ...]:
        return tuple({**checked.granted, **self.granted}.items())

    def _given_grants(self, params: StartParams) -> dict[bytes, str]:
        if not params.granted:
            return {}
        from exec_server.process.given_grants import given_grants

        return given_grants(params.granted)

    def _begin(
        self, start: ConfinedStart, launch: Launch, snapshot: WantedSnapshot | None
    ) -> asyncio.Future[Spawned]:
        if snapshot is None:
            return start.begin()
        return self._snapshots.spawn(snapshot.within(start.confinement), launch, start)

    def _spawn_restored(
        self, launch: Launch, child: Child, snapshot: WantedSnapshot
    ) -> asyncio.Future[Spawned]:
        from exec_server.process.snapshot import UnconfinedStart

        start = UnconfinedStart(self._spawner, child.reaped)
        return self._snapshots.spawn(snapshot, launch, start)

    @cached_property
    def _snapshots(self) -> Snapshots:
        """The shell snapshots of the session, loaded with the first start that asks for one."""
        from exec_server.process.snapshot import Snapshots

        return Snapshots(self._spawner, limits=self._limits)

    def _network(self, params: StartParams, terms: StartTerms) -> Network | None:
        if params.network_proxy is None:
            return None
        if self._open_network is None:
            raise InvalidParams("this server has no network proxy; the command was not started")
        return self._open_network(params, terms)

    def _launch(self, params: StartParams, cwd: bytes, terms: StartTerms) -> Launch:
        metadata = params.metadata
        server_env = self._server_env if terms.server_env is None else terms.server_env
        given = params.env
        if terms.account is not None:
            server_env = {**server_env, **terms.account.variables}
            chosen = params.env_policy.set if params.env_policy is not None else {}
            given = {**terms.account.variables, **chosen, **given}
        env = child_env(
            given,
            policy=params.env_policy,
            server_env=server_env,
            tool_call_id=metadata.tool_call_id if metadata else None,
            thread_id=metadata.thread_id if metadata else None,
            has_metadata=metadata is not None,
            tty_shell=self._login_shell if params.tty else None,
        )
        argv = [os.fsencode(word) for word in params.argv]
        program = argv[0]
        if params.arg0 is not None:
            argv[0] = os.fsencode(params.arg0)
        environ = _encoded(env)
        if params.shell_integration and params.tty:
            is_confined = params.sandbox is not None or terms.floor is not None
            argv, environ = integrated(argv, environ, is_confined=is_confined)
        if any(b"\0" in text for text in (*argv, *environ, *environ.values())):
            raise InternalError("nul byte found in provided data")
        limits = self._limits
        size = (params.rows or limits.default_rows, params.cols or limits.default_cols)
        return Launch(
            program,
            argv,
            environ,
            cwd,
            size if params.tty else None,
            params.pipe_stdin,
            asked_settings={"reports": True} if params.report else None,
        )


def _encoded(env: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
