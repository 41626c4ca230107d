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
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from exec_server.process import confinement
from exec_server.transport.http_front import Verdict
from exec_server.transport.socket_owner import (
    Endpoints,
    TcpOwner,
    is_own_address,
    is_peer_running,
    tcp_owner,
    unix_owner,
)

logger = logging.getLogger(__name__)

_ROOT = 0
# A proxy may be called through another one; longer chains than this are refused.
_MAX_PROXIES = 8
_LOOPBACK = ("127.", "::1", "::ffff:127.")

OTHER_USER = (
    "this server serves the user that started it (uid {ours}), and this connection belongs to uid "
    "{theirs}: {advice}"
)
UNKNOWN_USER = "the user behind this connection could not be found: {advice}"
_ADVICE = "start the server with --ws-auth or with --allow-other-users"
FROM_A_SANDBOX = "a sandboxed command may not connect to the server that confines it"
UNKNOWN_PROCESS = (
    "the process behind this connection could not be found, and sandboxed commands with a network "
    "may be running: a sandboxed command may not connect to the server that confines it"
)


class Sandboxes(Protocol):
    """The facts about the server's sandboxes."""

    @property
    def has_confined(self) -> bool: ...

    @property
    def has_lost_keeper(self) -> bool: ...


class LocalPeers:
    """Judges every accepted connection before anything of it is read.

    As long as no command was confined, no process is looked at.
    """

    def __init__(
        self,
        sandboxes: Sandboxes,
        *,
        allows_other_users: bool,
        refusal_of_user: Callable[[int], str | None] | None = None,
        advice: str = _ADVICE,
    ) -> None:
        """*refusal_of_user*, if it is given, judges the users of a Unix socket.

        *advice* is what those are told to do whose connections belong to another user.
        """
        self._advice = advice
        self._sandboxes = sandboxes
        self._refusal_of_user = refusal_of_user
        self._allows_other_users = allows_other_users
        self._uid = os.geteuid()
        # The connections whose processes have to be found, and the task that looks for them.
        self._undecided: list[tuple[TcpOwner, asyncio.Future[str | None]]] = []
        self._search: asyncio.Task[None] | None = None

    def refusal(self, transport: asyncio.BaseTransport) -> Verdict:
        """Why *transport* is refused, or None when it is accepted.

        The answer comes later if all processes have to be looked at, which takes a thread. That of
        a Unix socket is there at once.
        """
        if sys.platform != "linux":
            return None
        try:
            verdict = self._judge(transport)
        except OSError as exc:
            logger.debug("the peer of a connection could not be found: %s", exc)
            verdict = self._unknown
        if isinstance(verdict, asyncio.Future):
            verdict.add_done_callback(
                lambda known: None if known.cancelled() else _tell(known.result())
            )
        else:
            _tell(verdict)
        return verdict

    def _judge(self, transport: asyncio.BaseTransport) -> Verdict:
        theirs = transport.get_extra_info("peername")
        if not isinstance(theirs, tuple):
            return self._judge_unix(transport.get_extra_info("socket").fileno())
        ours = transport.get_extra_info("sockname")
        is_loopback = theirs[0].startswith(_LOOPBACK)
        return self._judge_tcp(Endpoints(ours[:2], theirs[:2]), is_loopback=is_loopback)

    def _judge_unix(self, fd: int) -> str | None:
        owner = unix_owner(fd)
        if self._refusal_of_user is not None:
            refusal = self._refusal_of_user(owner.uid)
            if refusal is not None:
                return refusal
        elif not self._is_allowed(owner.uid):
            return self._of_another(owner.uid)
        if not self._sandboxes.has_confined:
            return None
        if confinement.is_confined(owner.pid, server=self._ancestor):
            return FROM_A_SANDBOX
        return None if is_peer_running(fd) else UNKNOWN_PROCESS

    def _judge_tcp(self, ends: Endpoints, *, is_loopback: bool) -> Verdict:
        has_sandboxes = self._sandboxes.has_confined
        if not has_sandboxes and (self._allows_other_users or not is_loopback):
            return None
        if not is_loopback and not is_own_address(ends.theirs[0]):
            # It comes from another machine. Only a token, or a waiver, lets a server listen there.
            return None
        owner = tcp_owner(ends)
        if owner is None or owner.is_orphan:
            return self._unknown
        if not self._allows_other_users:
            user = _user_behind_proxies(owner)
            if user is None:
                return self._unknown
            if not self._is_allowed(user):
                return self._of_another(user)
        return self._judge_holders(owner) if has_sandboxes else None

    def _judge_holders(self, owner: TcpOwner) -> Verdict:
        # The sandbox of a user keeps that user, but root can become any.
        if self._uid not in (owner.uid, _ROOT):
            return None
        if _is_of_a_proxy(owner.inode):
            return FROM_A_SANDBOX
        verdict: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._undecided.append((owner, verdict))
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._look(), name="find peers")
        return verdict

    async def _look(self) -> None:
        """Look at all processes, once for all connections that have come meanwhile.

        A search for each connection would keep the server busy with a command that connects often.
        """
        loop = asyncio.get_running_loop()
        try:
            while self._undecided:
                judged, self._undecided = self._undecided, []
                owners = {owner.inode: owner.uid for owner, _ in judged}
                outside = await loop.run_in_executor(None, _outside, owners, self._ancestor)
                for owner, verdict in judged:
                    if not verdict.done():
                        verdict.set_result(None if owner.inode in outside else UNKNOWN_PROCESS)
        finally:
            self._search = None

    @property
    def _ancestor(self) -> int | None:
        """The process below which all sandboxes are; None if some may have lost their parents."""
        return None if self._sandboxes.has_lost_keeper else os.getpid()

    @property
    def _unknown(self) -> str:
        if self._allows_other_users:
            return UNKNOWN_PROCESS
        return UNKNOWN_USER.format(advice=self._advice)

    def _of_another(self, uid: int) -> str:
        return OTHER_USER.format(ours=self._uid, theirs=uid, advice=self._advice)

    def _is_allowed(self, uid: int) -> bool:
        return self._allows_other_users or uid in (self._uid, _ROOT)


def _outside(owners: Mapping[int, int], ancestor: int | None) -> set[int]:
    try:
        return confinement.held_outside(owners, server=ancestor)
    except OSError:
        return set()


def _tell(reason: str | None) -> None:
    if reason is not None:
        logger.warning(
            "a local connection is refused: %s", reason, extra={"notice": "local connection"}
        )


def _is_of_a_proxy(inode: int) -> bool:
    """True if the managed proxy of a command has made the connection, in this process."""
    upstream = _proxy_connections()
    return upstream is not None and upstream.made_for_a_command(inode)


def _user_behind_proxies(owner: TcpOwner) -> int | None:
    """The user of a connection. A managed proxy, which every user can call, has none of its own."""
    upstream = _proxy_connections()
    for _ in range(_MAX_PROXIES):
        served = None if upstream is None else upstream.served_behind(owner.inode)
        if served is None:
            return owner.uid
        behind = tcp_owner(Endpoints(*served))
        if behind is None or behind.is_orphan:
            break
        owner = behind
    return None


def _proxy_connections() -> Any:
    # A server whose commands have no proxy has not loaded this module.
    return sys.modules.get("exec_server.network.upstream")
