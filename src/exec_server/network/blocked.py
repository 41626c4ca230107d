"""The verdict about an attempt to connect, and what the process is told if it was refused."""

from __future__ import annotations

import msgspec

from exec_server.network.hosts import Host, HostRefusal
from exec_server.protocol.network import Decision, Protocol, Scope, Source


class Attempt(msgspec.Struct, frozen=True):
    """One connection that a process asks for."""

    protocol: Protocol
    host: Host | HostRefusal
    port: int
    # The HTTP method; None for SOCKS.
    method: str | None = None
    client: str | None = None

    @property
    def shown_host(self) -> str:
        """The host as it is logged and reported."""
        return self.host.shown if isinstance(self.host, HostRefusal) else self.host


class Verdict(msgspec.Struct, frozen=True):
    """The final decision about an attempt."""

    decision: Decision
    source: Source
    reason: str
    scope: Scope = "domain"
    # True if the client allowed what the rules did not.
    is_override: bool = False

    @property
    def is_allowed(self) -> bool:
        return self.decision == "allow"


ALLOWED = Verdict("allow", "baseline_policy", "allow")
OVERRIDDEN = Verdict("allow", "decider", "not_allowed", is_override=True)
UNDECIDED = Verdict("deny", "decider", "not_allowed")
METHOD_NOT_ALLOWED = Verdict("deny", "mode_guard", "method_not_allowed", "non_domain")
MITM_REQUIRED = Verdict("deny", "mode_guard", "mitm_required", "non_domain")
NO_UNIX_SOCKETS = Verdict("deny", "proxy_state", "unix_socket_unsupported", "non_domain")

# For each reason: the header that names it and the text that explains it.
_WORDS = {
    "not_allowed": ("blocked-by-allowlist", "Domain not in allowlist."),
    "not_allowed_local": (
        "blocked-by-allowlist",
        "Sandbox policy blocks local/private network addresses.",
    ),
    "denied": ("blocked-by-denylist", "Domain denied by the sandbox policy."),
    "operator": ("blocked-by-operator", "The operator of the server does not allow this host."),
    "method_not_allowed": ("blocked-by-method-policy", "Method not allowed in limited mode."),
    "mitm_required": ("blocked-by-mitm-required", "MITM required for limited HTTPS."),
}
_OTHERWISE = ("blocked-by-policy", "Request blocked by network policy.")


class _BlockedBody(msgspec.Struct):
    status: str
    host: str
    reason: str
    decision: str
    source: str
    protocol: str
    port: int
    message: str


def refused(reason: str) -> Verdict:
    """A refusal by the rules themselves."""
    return Verdict("deny", "baseline_policy", reason)


def explain(attempt: Attempt, verdict: Verdict) -> tuple[str, str, bytes]:
    """The type, the `x-proxy-error` and the body of the answer to a refused HTTP request."""
    error, message = _WORDS.get(verdict.reason, _OTHERWISE)
    if attempt.protocol != "http":
        return "text/plain", error, message.encode()
    body = _BlockedBody(
        "blocked",
        attempt.shown_host,
        verdict.reason,
        verdict.decision,
        verdict.source,
        attempt.protocol,
        attempt.port,
        message,
    )
    return "application/json", error, msgspec.json.encode(body)
