"""Decide about an attempt to connect: addresses to connect to, or a refusal. May ask the client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from exec_server.errors import ExecServerError
from exec_server.limits import Limits
from exec_server.network import blocked, upstream
from exec_server.network.addresses import Address
from exec_server.network.blocked import Attempt, Verdict
from exec_server.network.hosts import Host, HostRefusal, normalise_host
from exec_server.network.rules import Rules, Ruling
from exec_server.network.upstream import Resolution
from exec_server.printable import printable
from exec_server.protocol import network

logger = logging.getLogger(__name__)

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HTTPS_PORT = 443
_REASON_BYTES = 1024
# An event loop's clock cannot wait longer than this.
_LONGEST_WAIT = 365 * 24 * 3600.0

Resolver = Callable[[Host], Awaitable[Resolution]]


class PolicyClient(Protocol):
    """The client that is asked and told: the one attached to the session, if there is one."""

    def ask_policy(self, params: network.PolicyRequestParams) -> asyncio.Future[Any] | None:
        """Send a question; None when no client is attached, or too many questions are open."""

    def report_decision(self, event: network.PolicyDecisionEvent) -> None: ...

    def ask_grant(
        self, process_id: str, protocol: str, host: str, port: int
    ) -> asyncio.Future[bool] | None:
        """True if a host that no rule names is granted; None if it is not, and will not be."""


class AllowedAttempt(NamedTuple):
    """An attempt that may go on."""

    attempt: Attempt
    host: Host
    # The addresses of the host; only these are connected to. Empty when the name is unknown.
    addresses: list[Address]


class Decider:
    """Decides for one process. Every failure on the way is a refusal."""

    def __init__(
        self,
        process_id: str,
        decided_by: Rules,
        *,
        client: PolicyClient,
        limits: Limits,
        timeout_ms: int | None = None,
        allows_host: Callable[[str], bool] | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._process_id = process_id
        self._rules = decided_by
        self._client = client
        self._limits = limits
        self._timeout_ms = timeout_ms
        self._allows_host = allows_host
        self._resolver = resolver or self._resolve
        self._questions: set[asyncio.Future[Any]] = set()
        self._is_asking = timeout_ms is not None
        self._is_over = False

    async def decide(self, attempt: Attempt) -> AllowedAttempt | Verdict:
        """Decide where *attempt* may go, or why it may not; the client is told the result."""
        guard = self._guard_first(attempt)
        if guard is not None:
            return self.report(attempt, guard)
        if isinstance(attempt.host, HostRefusal):
            return self.report(attempt, self._unlisted)
        if self._allows_host is not None and not self._allows_host(_authority(attempt.host)):
            return self.report(attempt, blocked.refused("operator"))
        verdict = await self._judge(attempt, attempt.host)
        addresses: list[Address] = []
        if verdict.is_allowed:
            found = await self._resolver(attempt.host)
            addresses = found.addresses
            ruling = self._judge_addresses(attempt.host, addresses)
            if addresses and await self._is_denied_as_found(attempt.host, found):
                ruling = Ruling.DENIED
            if ruling is not Ruling.ALLOW:
                verdict = blocked.refused(ruling.value)
        self.report(attempt, verdict)
        if not verdict.is_allowed:
            return verdict
        guard = self._guard_last(attempt)
        if guard is not None:
            return self.report(attempt, guard)
        return AllowedAttempt(attempt, attempt.host, addresses)

    def _judge_addresses(self, host: Host, addresses: list[Address]) -> Ruling:
        if not addresses and not self._rules.allows_local:
            return Ruling.LOCAL
        return self._rules.judge_addresses(host, addresses)

    async def _is_denied_as_found(self, host: Host, found: Resolution) -> bool:
        """True if a rule denies a name under which the resolver has found *host*.

        The resolver completes short names from its search list, and follows aliases. It tells only
        the last name. So of the completed names those that are denied are asked for.
        """
        if self._is_denied(found.name):
            return True
        if found.name.lower() == host:
            return False
        seconds = self._limits.proxy_resolve_timeout
        completed = [f"{host}.{domain}" for domain in upstream.search_list() if domain]
        denied = [name for name in completed if self._is_denied(name)]
        if not denied or not await upstream.is_completed(host, seconds=seconds):
            return False
        for name in denied:
            if (await upstream.resolve(f"{name}.", seconds=seconds)).addresses:
                return True
        return False

    def _is_denied(self, name: str) -> bool:
        host = normalise_host(name)
        return not isinstance(host, HostRefusal) and self._rules.judge(host) is Ruling.DENIED

    @property
    def _unlisted(self) -> Verdict:
        """The verdict about a host that no rule allows and about which the client is not asked."""
        is_asked = self._timeout_ms is not None
        return blocked.UNDECIDED if is_asked else blocked.refused(Ruling.ASK.value)

    def report(self, attempt: Attempt, verdict: Verdict) -> Verdict:
        """Tell the client about *verdict*, and return it."""
        logger.info(
            "process %s: %s %s (%s, %s) to %s:%d",
            printable(self._process_id),
            attempt.protocol,
            verdict.decision,
            verdict.source,
            printable(verdict.reason),
            attempt.shown_host,
            attempt.port,
        )
        self._client.report_decision(
            network.PolicyDecisionEvent(
                process_id=self._process_id,
                timestamp=_timestamp(),
                scope=verdict.scope,
                decision=verdict.decision,
                source=verdict.source,
                reason=verdict.reason,
                protocol=attempt.protocol,
                host=attempt.shown_host,
                port=attempt.port,
                method=UNSET if attempt.method is None else attempt.method,
                client=UNSET if attempt.client is None else attempt.client,
                policy_override=verdict.is_override,
            )
        )
        return verdict

    def stop_asking(self) -> None:
        """Refuse everything that is being asked now or would be asked later."""
        self._is_asking = False
        self._is_over = True
        for question in tuple(self._questions):
            question.cancel()

    def _guard_first(self, attempt: Attempt) -> Verdict | None:
        """In limited mode SOCKS is only for HTTPS, so datagrams are refused."""
        if not self._rules.is_limited or not attempt.protocol.startswith("socks5"):
            return None
        is_https = attempt.protocol == "socks5_tcp" and attempt.port == _HTTPS_PORT
        return None if is_https else blocked.METHOD_NOT_ALLOWED

    def _guard_last(self, attempt: Attempt) -> Verdict | None:
        if not self._rules.is_limited:
            return None
        if attempt.protocol != "http":
            return blocked.MITM_REQUIRED
        return None if attempt.method in _SAFE_METHODS else blocked.METHOD_NOT_ALLOWED

    async def _judge(self, attempt: Attempt, host: Host) -> Verdict:
        ruling = self._rules.judge(host)
        if ruling is Ruling.ALLOW:
            return blocked.ALLOWED
        if ruling is Ruling.ASK and self._timeout_ms is not None:
            return await self._ask(attempt, host, self._timeout_ms)
        if ruling is Ruling.ASK and await self._is_granted(attempt, host):
            return blocked.OVERRIDDEN
        return blocked.refused(ruling.value)

    async def _is_granted(self, attempt: Attempt, host: Host) -> bool:
        """Wait for a grant, if the process is started so that refusals wait for one."""
        if self._is_over:
            return False
        question = self._client.ask_grant(self._process_id, attempt.protocol, host, attempt.port)
        if question is None:
            return False
        self._questions.add(question)
        try:
            await asyncio.wait({question})
            return not question.cancelled() and question.result()
        finally:
            self._questions.discard(question)
            question.cancel()

    async def _ask(self, attempt: Attempt, host: Host, timeout_ms: int) -> Verdict:
        if not self._is_asking:
            return blocked.UNDECIDED
        request = network.ConnectionAttempt(attempt.protocol, host, attempt.port)
        question = self._client.ask_policy(network.PolicyRequestParams(self._process_id, request))
        if question is None:
            return blocked.UNDECIDED
        self._questions.add(question)
        seconds = timeout_ms / 1000 + self._limits.policy_grace
        try:
            # `wait` is used because cancelling the question (`stop_asking`) must not cancel this
            # task.
            await asyncio.wait({question}, timeout=min(seconds, _LONGEST_WAIT))
            return _verdict(question)
        finally:
            self._questions.discard(question)
            if not question.cancel() and not question.cancelled():
                # The process may have hung up meanwhile; reading the error keeps asyncio from
                # logging it.
                question.exception()

    async def _resolve(self, host: Host) -> Resolution:
        return await upstream.resolve(host, seconds=self._limits.proxy_resolve_timeout)


def _authority(host: Host) -> str:
    """The host as a URL has it, with an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def _verdict(question: asyncio.Future[Any]) -> Verdict:
    """The verdict that an answer means; no answer, or one without meaning, is a refusal."""
    if not question.done() or question.cancelled():
        return blocked.UNDECIDED
    error = question.exception()
    if error is not None:
        if not isinstance(error, ExecServerError):
            raise error
        return blocked.UNDECIDED
    try:
        result = msgspec.convert(question.result(), network.PolicyRequestResult)
    except msgspec.ValidationError:
        return blocked.UNDECIDED
    decision = result.decision
    if isinstance(decision, network.Allow):
        return blocked.OVERRIDDEN
    if not _is_shown(decision.reason):
        return blocked.UNDECIDED
    kind: network.Decision = "deny" if isinstance(decision, network.Deny) else "ask"
    return Verdict(kind, "decider", decision.reason or "policy_denied")


def _is_shown(reason: str) -> bool:
    """True if *reason* may be shown as it is: short, and without control characters."""
    has_controls = any(char < " " or "\x7f" <= char <= "\x9f" for char in reason)
    return len(reason.encode("utf-8", "surrogatepass")) <= _REASON_BYTES and not has_controls


def _timestamp() -> str:
    now = datetime.now(UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
