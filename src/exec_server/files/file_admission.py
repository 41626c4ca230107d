"""Decides whether a file request runs in the server, in a confined helper, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

from msgspec import structs

from exec_server.protocol.fs import Sandbox
from exec_server.sandbox.floor import PolicyFloor
from exec_server.sandbox.model import Access, Policy
from exec_server.sandbox.policy import resolve


class FileAdmission:
    """The decision for a server with the environment *env*."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._tmpdir = os.fsencode(env.get("TMPDIR", "")) or None

    def policy(
        self, sandbox: Sandbox, *, is_read: bool, floor: PolicyFloor | None = None
    ) -> Policy | None:
        """The policy of a request; None if neither *sandbox* nor *floor* restricts anything.

        Raises RpcError if *sandbox* makes no sense here, or goes beyond *floor*.
        """
        if floor is not None:
            policy = floor.for_file(sandbox, tmpdir=self._tmpdir)
            return _for_reading(policy) if is_read else policy
        if sandbox is None:
            return None
        policy = resolve(sandbox, for_process=False, tmpdir=self._tmpdir, is_read=is_read)
        if not policy.is_managed:
            return None
        return _for_reading(policy) if is_read else policy


@lru_cache(maxsize=256)
def _for_reading(policy: Policy) -> Policy:
    """*policy* for a request that only reads: nothing is writable, so no name is protected.

    A policy that denies something stays as it is, because a writable path below a denied one is
    visible only as such.
    """
    if policy.globs or any(rule.access is Access.DENY for rule in policy.rules):
        return policy
    reads = {structs.replace(rule, access=Access.READ) for rule in policy.rules}
    if whole := [rule for rule in reads if rule.path == b"/"]:
        # All policies that show everything then share one helper.
        reads = set(whole)
    return structs.replace(policy, rules=tuple(sorted(reads)))
