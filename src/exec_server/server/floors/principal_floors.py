"""The floors of one connection's principal, applied to each of its requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import structs

from exec_server.access.floors import lowest, problems, sandbox_words
from exec_server.access.principal import NO_FLOORS, Principal, SandboxFloor
from exec_server.errors import FloorRefused
from exec_server.process.start_terms import StartTerms, UserAccount
from exec_server.protocol.environment import EnvironmentInfo
from exec_server.protocol.paths import PathUri, normalised, to_uri
from exec_server.protocol.process import StartParams
from exec_server.protocol.sandbox import SandboxContext, read_only, workspace_write
from exec_server.server.floors.accounts import find_account
from exec_server.state.env_floor import EnvFloor

if TYPE_CHECKING:
    from exec_server.files.file_service import FileTerms
    from exec_server.sandbox.floor import PolicyFloor
    from exec_server.server.floors.host_floor import HostFloor

# The members of file requests that name a path to look at or to change.
_PATH_MEMBERS = ("path", "source_path", "destination_path")


class PrincipalFloors:
    """The floors of *who* on a server with the environment *server_env*.

    *refused* is called with the rule if the managed network of a command refuses a host. Raises
    FloorRefused if the floors cannot be held here at all, as for a user that is unknown.
    """

    def __init__(
        self,
        who: Principal,
        *,
        server_env: Mapping[str, str],
        refused: Callable[[str], None],
    ) -> None:
        floors = who.floors
        self._name = who.name
        self._floors = floors
        self._server_env = server_env
        self._refused = refused
        self._roots = tuple(normalised(os.fsencode(root)) for root in floors.roots)
        self._tmpdir = os.fsencode(server_env.get("TMPDIR", "")) or None
        self.account: UserAccount | None = None
        if floors.run_as is not None:
            self.account = find_account(floors.run_as, principal=who.name)

    # process/start

    def start(self, params: StartParams) -> tuple[StartParams, StartTerms]:
        """The start as it may be, and its terms. Raises FloorRefused."""
        for problem in problems(self._floors):
            raise FloorRefused(f"principal `{self._name}` cannot start commands: {problem}")
        self._check_variables(params)
        self._check_path(PathUri(params.cwd).native, "the working directory ")
        changes: dict[str, Any] = {"limits": lowest(params.limits, self._floors.limits)}
        sandbox, hosts = self._floors.sandbox, self.hosts
        if hosts is not None and sandbox is not None and sandbox.network:
            changes["network_proxy"] = hosts.proxy(params.network_proxy)
            changes["enforce_managed_network"] = True
        terms = StartTerms(
            floor=self._commands,
            server_env=self.server_env,
            account=self.account,
            allows_host=None if hosts is None else hosts.told(self._refused),
        )
        return structs.replace(params, **changes), terms

    def _check_variables(self, params: StartParams) -> None:
        chosen = params.env_policy.set if params.env_policy is not None else {}
        hidden = self._env.first_hidden((*params.env, *chosen))
        if hidden is not None:
            patterns = " ".join(self._floors.hide_env)
            raise FloorRefused(
                f"the floor of principal `{self._name}` hides {hidden} (hide-env {patterns})"
            )

    @property
    def _commands(self) -> PolicyFloor | None:
        return None if self._floors.sandbox is None else self.policy_floor

    @cached_property
    def server_env(self) -> Mapping[str, str]:
        """The variables of the server that requests may use."""
        return self._env.inherited(self._server_env)

    @cached_property
    def _env(self) -> EnvFloor:
        return EnvFloor(self._floors.keep_env, self._floors.hide_env)

    # Files.

    @property
    def holds_files(self) -> bool:
        """True if file calls are not those of the server's own user on all of its files."""
        floors = self._floors
        return bool(floors.roots or floors.sandbox is not None or self.account is not None)

    @property
    def hides_files(self) -> bool:
        """True if some files that the server can read are not for this principal."""
        return bool(self._roots or self.account is not None)

    @cached_property
    def file_terms(self) -> FileTerms:
        from exec_server.files.file_service import FileTerms
        from exec_server.server.file_helpers import FilesOwner

        return FileTerms(self.policy_floor, FilesOwner(self._name, self.account))

    @cached_property
    def policy_floor(self) -> PolicyFloor | None:
        """What sandboxes must stay within; None if there is no such floor."""
        floors = self._floors
        if floors.sandbox is None and not self._roots:
            return None
        # The sandbox is loaded with the first request that needs it.
        from exec_server.sandbox.floor import PolicyFloor

        return PolicyFloor(
            self._words,
            _context(floors.sandbox),
            self._roots,
            tmpdir=self._tmpdir,
            is_proxied=floors.hosts is not None and floors.sandbox is not None,
        )

    @property
    def _words(self) -> str:
        rules = []
        if self._floors.sandbox is not None:
            rules.append(
                f"the floor of principal `{self._name}` is {sandbox_words(self._floors.sandbox)}"
            )
        if self._roots:
            rules.append(self._root_words)
        return " and ".join(rules)

    @property
    def _root_words(self) -> str:
        return f"the roots of principal `{self._name}` are {', '.join(self._floors.roots)}"

    def check_paths(self, params: Any) -> None:
        """Raise FloorRefused if a path of *params* is outside of the roots.

        This is for the words: what the helper of the call cannot see, it cannot open either, also
        if a symbolic link leads there.
        """
        for member in _PATH_MEMBERS:
            path = getattr(params, member, None)
            if isinstance(path, PathUri):
                self._check_path(path.native, "")

    def _check_path(self, path: bytes, what: str) -> None:
        if not self._roots:
            return
        from exec_server.sandbox.floor import is_below

        if not is_below(normalised(path), self._roots):
            shown = path.decode("utf-8", "replace")
            raise FloorRefused(f"{self._root_words}; {what}{shown} is outside of them")

    # environment/info

    def info(self, known: EnvironmentInfo) -> EnvironmentInfo:
        """The facts about the server as this principal can use them.

        Clients start commands in the directory that is named here, unless they choose another.
        """
        changes: dict[str, Any] = {}
        if self.account is not None:
            home = self.account.home
            changes["user_home_dir"] = to_uri(home)
            changes["cwd"] = to_uri(home if os.path.isdir(home) else "/")
        if self._roots:
            changes["cwd"] = to_uri(self._roots[0])
        if self.hides_files:
            closed = dict.fromkeys(("fsWatchMissing", "environmentConfigRead"), False)
            changes["capabilities"] = {**known.capabilities, **closed}
        return structs.replace(known, **changes)

    # Hosts.

    @cached_property
    def hosts(self) -> HostFloor | None:
        if self._floors.hosts is None:
            return None
        from exec_server.server.floors.host_floor import HostFloor

        return HostFloor(self._floors.hosts, principal=self._name)


def _context(floor: SandboxFloor | None) -> SandboxContext | None:
    if floor is None:
        return None
    if floor.kind == "read-only":
        return read_only(network=floor.network)
    # Without folders only temporary files can be written.
    return workspace_write(floor.folders or ("/tmp",), network=floor.network)


def floors_of(
    who: Principal, *, server_env: Mapping[str, str], refused: Callable[[str], None]
) -> PrincipalFloors | None:
    """The floors of *who*; None if there are none. Raises FloorRefused."""
    if who.floors == NO_FLOORS:
        return None
    return PrincipalFloors(who, server_env=server_env, refused=refused)
