"""The one place where a file request's sandbox is judged: free, or by a helper, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

from msgspec import structs

from exec_server.protocol.fs import Sandbox
from exec_server.sandbox.model import Access, Policy
from exec_server.sandbox.policy import resolve


class FileAdmission:
    """Judges for a server whose environment is *env*."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._tmpdir = os.fsencode(env.get("TMPDIR", "")) or None

    def policy(self, sandbox: Sandbox, *, is_read: bool) -> Policy | None:
        """What a request may touch; None when that is all that the server itself may.

        Raises RpcError when *sandbox* makes no sense here.
        """
        if sandbox is None:
            return None
        policy = resolve(sandbox, for_process=False, tmpdir=self._tmpdir, is_read=is_read)
        if not policy.is_managed:
            return None
        return _for_reading(policy) if is_read else policy


@lru_cache(maxsize=256)
def _for_reading(policy: Policy) -> Policy:
    """The same for who only looks: nothing is writable, and so nothing needs protection from it.

    Where something is denied, what is writable below it is visible for that reason alone.
    """
    if policy.globs or any(rule.access is Access.DENY for rule in policy.rules):
        return policy
    reads = {structs.replace(rule, access=Access.READ) for rule in policy.rules}
    if whole := [rule for rule in reads if rule.path == b"/"]:
        # All policies that show everything have the same helper.
        reads = set(whole)
    return structs.replace(policy, rules=tuple(sorted(reads)))
