"""NetworkPolicy: the callbacks that decide about, and hear of, the network of processes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from exec_server.protocol import network
from exec_server.rpc.router import Route

logger = logging.getLogger(__name__)

# The reason of a refusal that no callback has chosen.
_UNDECIDED = "not_allowed"

# True allows; False denies without a particular reason.
PolicyAnswer = bool | network.Allow | network.Deny | network.Ask
OnPolicyRequest = Callable[[network.PolicyRequestParams], Awaitable[PolicyAnswer]]
OnPolicyDecision = Callable[[network.PolicyDecisionEvent], None]


class NetworkPolicy:
    """The callbacks of one client; they may be changed at any time.

    *on_request* is called for hosts that no rule decides, for processes whose `network_proxy` has
    a `policy_decision_timeout_ms`. Access is denied if it raises an exception or is None.
    *on_decision* is called for every attempt; some may be left out if the client is slow.
    """

    def __init__(self) -> None:
        self.on_request: OnPolicyRequest | None = None
        self.on_decision: OnPolicyDecision | None = None
        self.routes = {
            network.POLICY_REQUEST.name: Route(
                network.POLICY_REQUEST, lambda _, params: self._answer(params)
            )
        }

    async def _answer(self, params: network.PolicyRequestParams) -> network.PolicyRequestResult:
        if self.on_request is None:
            return network.PolicyRequestResult(network.Deny(_UNDECIDED))
        answer = await self.on_request(params)
        if isinstance(answer, bool):
            answer = network.Allow() if answer else network.Deny("")
        return network.PolicyRequestResult(answer)

    def decision_received(self, event: network.PolicyDecisionEvent) -> None:
        if self.on_decision is None:
            return
        try:
            self.on_decision(event)
        except Exception:
            logger.exception("an observer of network decisions failed")
