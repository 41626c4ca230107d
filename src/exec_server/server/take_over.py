"""Takes a session from a connection that its client has lost, although the server still has it.

When a router or a balancer forgets a connection, the client learns it and the server does not: the
server would believe in the connection until its pings have gone unanswered for a minute.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from exec_server.protocol.lifecycle import PING, InitializeParams, TakeOver
from exec_server.protocol.method import NOTHING
from exec_server.rpc.peer import Peer
from exec_server.server.session import Session
from exec_server.state.attachment import Claim

logger = logging.getLogger(__name__)

TAKEN_OVER = "the session was taken over by another connection"

# How often it is looked whether bytes have come. The kernel counts them and reports to no callback.
_LOOK_SECONDS = 0.05


def claim_of(params: InitializeParams) -> Claim | None:
    """The client that wants the session, and its attempt, if it says so."""
    asked = params.take_over
    if asked is None or asked.client is None or asked.attempt is None:
        return None
    return Claim(asked.client, asked.attempt)


def needs_probe(asked: TakeOver) -> bool:
    """True if the client does not say which connection it has lost, so that it has to be asked."""
    return asked.generation is None and not asked.force


async def is_silent(peer: Peer, *, seconds: float) -> bool:
    """Ask the client behind *peer* for a sign of life; True if nothing comes within *seconds*.

    Every client answers the request, if only with an error. Any other byte counts as well.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    before = peer.arrived
    answer = peer.call(PING, NOTHING)
    answer.add_done_callback(_ignore)
    while peer.arrived == before and not peer.is_lost:
        if loop.time() >= deadline:
            return True
        await asyncio.sleep(min(_LOOK_SECONDS, seconds))
    return peer.is_lost


def _ignore(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


def displace(session: Session, peer: Peer) -> None:
    """End the connection of *peer*, which holds *session*."""
    logger.info("a session is taken over by another connection")
    session.detach()
    peer.give_up(TAKEN_OVER)
