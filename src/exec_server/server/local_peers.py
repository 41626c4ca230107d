"""Which local connections a server accepts: those of its own user, and none from its sandboxes.

::

    accepted socket ─▶ its owner ─▶ our own user, or root? ─▶ outside of all sandboxes? ─▶ accepted
                                         no: refused                no: refused

A token, or `--allow-other-users`, waives the first question. The second is always asked, once
there has been a sandbox: a confined command that could call its own server would be confined by
nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from exec_server.process import confinement
from exec_server.transport.socket_owner import Endpoints, tcp_owner, unix_owner

logger = logging.getLogger(__name__)

_ROOT = 0
_LOOPBACK = ("127.", "::1", "::ffff:127.")

OTHER_USER = (
    "this server serves the user that started it (uid {ours}), and this connection belongs to uid "
    "{theirs}: start the server with --ws-auth or with --allow-other-users"
)
UNKNOWN_USER = (
    "the user behind this connection could not be found: start the server with --ws-auth or with "
    "--allow-other-users"
)
FROM_A_SANDBOX = "a sandboxed command may not connect to the server that confines it"
UNKNOWN_PROCESS = (
    "the process behind this connection could not be found, and sandboxed commands with a network "
    "may be running: a sandboxed command may not connect to the server that confines it"
)


class LocalPeers:
    """Judges every accepted connection before anything of it is read.

    *has_sandboxes* tells whether any command was ever confined; as long as none was, no
    process is looked at.
    """

    def __init__(
        self, *, allows_other_users: bool, has_sandboxes: Callable[[], bool], uid: int | None = None
    ) -> None:
        self._allows_other_users = allows_other_users
        self._has_sandboxes = has_sandboxes
        self._uid = os.geteuid() if uid is None else uid

    def refusal(self, transport: asyncio.BaseTransport) -> str | None:
        """Why *transport* is refused, or None when it is accepted."""
        if sys.platform != "linux":
            return None
        reason = self._judge(transport)
        if reason is not None:
            logger.warning("a local connection is refused: %s", reason)
        return reason

    def _judge(self, transport: asyncio.BaseTransport) -> str | None:
        theirs = transport.get_extra_info("peername")
        if not isinstance(theirs, tuple):
            return self._judge_unix(transport.get_extra_info("socket").fileno())
        ours = transport.get_extra_info("sockname")
        is_loopback = theirs[0].startswith(_LOOPBACK)
        return self._judge_tcp(Endpoints(ours[:2], theirs[:2]), is_loopback=is_loopback)

    def _judge_unix(self, fd: int) -> str | None:
        owner = unix_owner(fd)
        if not self._is_allowed(owner.uid):
            return OTHER_USER.format(ours=self._uid, theirs=owner.uid)
        if self._has_sandboxes() and confinement.is_confined(owner.pid, server=os.getpid()):
            return FROM_A_SANDBOX
        return None

    def _judge_tcp(self, ends: Endpoints, *, is_loopback: bool) -> str | None:
        has_sandboxes = self._has_sandboxes()
        if not has_sandboxes and (self._allows_other_users or not is_loopback):
            return None
        owner = tcp_owner(ends)
        if owner is None and not is_loopback:
            # It comes from another machine. Only a token, or a waiver, lets a server listen there.
            return None
        if owner is None or owner.is_orphan:
            return UNKNOWN_USER
        if not self._is_allowed(owner.uid):
            return OTHER_USER.format(ours=self._uid, theirs=owner.uid)
        # A sandbox of ours has our own user.
        if has_sandboxes and owner.uid == self._uid and not self._is_held_outside(owner.inode):
            return UNKNOWN_PROCESS
        return None

    def _is_held_outside(self, inode: int) -> bool:
        return confinement.has_unconfined_holder(inode, uid=self._uid, server=os.getpid())

    def _is_allowed(self, uid: int) -> bool:
        return self._allows_other_users or uid in (self._uid, _ROOT)
