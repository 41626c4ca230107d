"""What the sandbox of a process refused: the calls about it, for a client and for a handle."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable

from exec_server.client.client_session import ClientSession
from exec_server.errors import InvalidRequest
from exec_server.protocol import denials
from exec_server.protocol.denials import Denial, DenialsResult, GrantResult, GrantScope

logger = logging.getLogger(__name__)

# Called with each new denial, and with each call that is held.
OnDenied = Callable[[Denial], object]

NOT_RECORDED = "it does not record what a sandbox refuses"


class DenialCalls:
    """The part of a client that is about denials."""

    _session: ClientSession

    async def list_denials(self, process_id: str) -> DenialsResult:
        """What was refused to a process that was started with `denials`, with true counts.

        An extension: other servers raise MethodNotFound.
        """
        await self._session.require("processDenials", NOT_RECORDED)
        params = denials.DenialsParams(process_id)
        return await self._session.call(denials.DENIALS, params, repeat=True)

    async def grant_denied(
        self,
        process_id: str,
        denial: Denial | str,
        scope: GrantScope = "once",
        *,
        restart: bool = False,
    ) -> GrantResult:
        """Allow what was refused to a process; *denial* is a record, or its `grant`.

        With *restart* the process is ended and started again, with the same id and a wider sandbox;
        `attach` gives a handle of the new one. Raises InvalidRequest if it cannot be allowed.
        """
        grant = denial.grant if isinstance(denial, Denial) else denial
        if grant is None:
            assert isinstance(denial, Denial)
            raise InvalidRequest(f"`{denial.target}` cannot be granted: {denial.rule}")
        params = denials.GrantParams(process_id, grant, scope, restart)
        return await self._session.call(denials.GRANT, params)


def check_observer(on_denied: OnDenied | None) -> None:
    """Raises TypeError for what `told` could not call."""
    if on_denied is None:
        return
    if not callable(on_denied):
        raise TypeError(f"on_denied must be a function, not {type(on_denied).__name__}")
    if inspect.iscoroutinefunction(on_denied):
        raise TypeError("on_denied must be a plain function: one that is async is never awaited")


def told(on_denied: OnDenied | None, denial: Denial) -> None:
    """Call *on_denied*, whose failure must not end the connection."""
    if on_denied is None:
        return
    try:
        on_denied(denial)
    except Exception:
        logger.exception("an observer of denials failed")
