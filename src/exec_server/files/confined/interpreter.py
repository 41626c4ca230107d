"""How a helper or an agent is started: by the same interpreter, with a minimal environment."""

from __future__ import annotations

import os
import sys
from functools import cache

from exec_server.own_interpreter import command_of, import_path
from exec_server.sandbox.model import Plan, Policy
from exec_server.sandbox.plan import plan
from exec_server.sandbox.policy import MINIMAL_READS

# If it is set, other processes of the helper's user cannot trace the helper.
HIDDEN = "EXEC_SERVER_HIDDEN_HELPER"
# The variables that a helper inherits from the server.
PASSED_ON = ("PATH", "TMPDIR", "TMP", "TEMP")
_SETTINGS, _LIBRARY_CACHE = b"/etc", b"/etc/ld.so.cache"
_HELPER = "exec_server.files.confined.helper_main"
_AGENT = "exec_server.files.agents.agent_main"


def arguments(plan: Plan) -> list[bytes]:
    """The command line of a helper for *plan*, whose stdin is its socket."""
    return [*command_of(_HELPER), *plan.left_closed]


def agent_arguments(work: str) -> list[bytes]:
    """The command line of an agent that does *work*."""
    return [*command_of(_AGENT), work.encode()]


def helper_plan(policy: Policy, *programs: bytes) -> Plan:
    """The plan for *policy* with the files that this interpreter needs, and *programs*.

    Nothing is made on the host for it: the helper keeps missing names closed itself. Raises
    Unenforceable.
    """
    reads = _needed_reads(hides_settings=policy.floor is not None)
    return plan(policy, extra_reads=(*reads, *programs)).without_placeholders()


@cache
def _needed_reads(*, hides_settings: bool) -> tuple[bytes, ...]:
    """The files that an interpreter reads; most of /etc is not among them."""
    system = [path for path in MINIMAL_READS if not (hides_settings and path == _SETTINGS)]
    folders = (sys.base_prefix, sys.base_exec_prefix, *import_path())
    return tuple(dict.fromkeys((*system, _LIBRARY_CACHE, *map(os.fsencode, folders))))
