"""The policies of a principal with a floor: what is asked for if that is narrower, or a refusal.

A request without a sandbox gets the floor's. A sandbox that is narrower stays as it is, and a wider
one is refused. Roots take away what is outside of them: file calls see the roots and nothing else,
commands also what programs need to run, and what the sandbox floor lets them write.
"""

from __future__ import annotations

from functools import cached_property

from msgspec import structs

from exec_server.errors import FloorRefused
from exec_server.protocol.sandbox import SandboxContext
from exec_server.sandbox.containment import excess, shared
from exec_server.sandbox.model import Access, Floor, Policy, Rule
from exec_server.sandbox.policy import MINIMAL_READS, is_within, resolve


class PolicyFloor:
    """The floor of one principal.

    *words* name it in a refusal. *sandbox* is the widest sandbox, and *roots* are the directories
    that requests stay below; at least one of both is given. *tmpdir* is the server's own TMPDIR: a
    client chooses the one of its command, and must not widen the floor by that. If *is_proxied*,
    the network of commands has to be a managed one.
    """

    def __init__(
        self,
        words: str,
        sandbox: SandboxContext | None,
        roots: tuple[bytes, ...],
        *,
        tmpdir: bytes | None,
        is_proxied: bool = False,
    ) -> None:
        self._words = words
        self._sandbox = sandbox
        self._roots = roots
        self._tmpdir = tmpdir
        self._is_proxied = is_proxied

    def for_process(
        self,
        asked: SandboxContext | None,
        *,
        cwd: bytes,
        tmpdir: bytes | None,
        is_proxied: bool,
    ) -> Policy:
        """The policy of a command that asks for *asked*. Raises FloorRefused or InvalidParams."""
        if asked is None:
            policy = self._of_commands
            if not is_proxied:
                # Without a proxy there is no host that it may reach.
                network = "restricted" if policy.is_proxied else policy.network
                return self._held(
                    structs.replace(policy, network=network, is_proxied=False), policy
                )
            return self._held(structs.replace(policy, is_proxied=True), policy)
        policy = resolve(asked, for_process=True, cwd=cwd, tmpdir=tmpdir, is_proxied=is_proxied)
        if self._roots:
            policy = shared(policy, self._view_of_commands)
        return self._held(policy, self._of_commands)

    def for_file(self, asked: SandboxContext | None, *, tmpdir: bytes | None) -> Policy:
        """The policy of a file call that asks for *asked*. Raises RpcError."""
        if asked is None:
            return self._held(self._of_files, self._of_files)
        policy = resolve(asked, for_process=False, tmpdir=tmpdir)
        policy = structs.replace(policy, network="restricted")
        if self._roots:
            policy = shared(policy, self._view_of_files)
        return self._held(policy, self._of_files)

    def _held(self, policy: Policy, floor: Policy) -> Policy:
        beyond = excess(policy, floor)
        if beyond is not None:
            raise FloorRefused(f"{self._words}; the request asks for more: {beyond}")
        return structs.replace(policy, floor=Floor(floor, self._words))

    @cached_property
    def _of_commands(self) -> Policy:
        if self._sandbox is None:
            raise FloorRefused(f"{self._words}, and no sandbox floor holds commands")
        policy = resolve(
            self._sandbox,
            for_process=True,
            cwd=b"/",
            tmpdir=self._tmpdir,
            is_proxied=self._is_proxied,
        )
        return shared(policy, self._view_of_commands) if self._roots else policy

    @cached_property
    def _of_files(self) -> Policy:
        policy = Policy(False, "restricted")
        if self._sandbox is not None:
            policy = resolve(self._sandbox, for_process=False, tmpdir=self._tmpdir)
            policy = structs.replace(policy, network="restricted")
        return shared(policy, self._view_of_files) if self._roots else policy

    @cached_property
    def _view_of_files(self) -> Policy:
        rules = tuple(Rule(root, Access.WRITE) for root in sorted(self._roots))
        # The sandbox floor, if there is one, says whether names are protected.
        return Policy(True, "enabled", rules, protects_metadata=False)

    @cached_property
    def _view_of_commands(self) -> Policy:
        assert self._sandbox is not None
        floor = resolve(self._sandbox, for_process=True, cwd=b"/", tmpdir=self._tmpdir)
        writable = {rule.path: rule for rule in floor.rules if rule.access is Access.WRITE}
        needed = {path: Rule(path, Access.READ, only_existing=True) for path in MINIMAL_READS}
        roots = {root: Rule(root, Access.WRITE) for root in self._roots}
        rules = {**needed, **writable, **roots}
        return Policy(True, "enabled", tuple(sorted(rules.values())), protects_metadata=False)


def is_below(path: bytes, roots: tuple[bytes, ...]) -> bool:
    """True if *path*, which is absolute and normal, is one of *roots* or lexically below one."""
    return any(is_within(path, root) for root in roots)
