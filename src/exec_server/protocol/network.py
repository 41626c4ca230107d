"""`network/*` and the members of `process/start` that manage a process's network."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from exec_server.protocol.method import Event, Method
from exec_server.protocol.numbers import Count, fits_u64

DomainRule = Literal["none", "allow", "deny"]
SocketRule = Literal["allow", "deny"]
Mode = Literal["limited", "full"]
Protocol = Literal["http", "https_connect", "socks5_tcp", "socks5_udp"]
Scope = Literal["domain", "non_domain"]
Decision = Literal["allow", "deny", "ask"]
Source = Literal["baseline_policy", "mode_guard", "proxy_state", "decider"]

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ProxyConfig(msgspec.Struct, rename="camel", kw_only=True):
    """The rules of the proxy of one process."""

    enabled: bool
    enable_socks5: bool
    enable_socks5_udp: bool
    allow_upstream_proxy: bool
    dangerously_allow_all_unix_sockets: bool
    mode: Mode
    allow_local_binding: bool
    # Maps host patterns to rules. `deny` overrides `allow`, and `none` has no effect.
    domains: dict[str, DomainRule] | None = None
    # The client is asked about these hosts although they are allowed.
    review_domains: list[str] = []
    unix_sockets: dict[str, SocketRule] | None = None


class AuditMetadata(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """The owner of the process, for logs."""

    conversation_id: str | None = None
    app_version: str | None = None
    user_account_id: str | None = None
    auth_mode: str | None = None
    originator: str | None = None
    user_email: str | None = None
    terminal_type: str | None = None
    model: str | None = None
    slug: str | None = None


class NetworkProxy(msgspec.Struct, rename="camel", omit_defaults=True):
    """A proxy for one process."""

    proxy: ProxyConfig
    audit_metadata: AuditMetadata = AuditMetadata()
    environment_id: str | None = None
    execution_id: str | None = None
    # If this is given, the client is asked about hosts that no rule decides.
    policy_decision_timeout_ms: Count | None = None

    def __post_init__(self) -> None:
        if not fits_u64(self.policy_decision_timeout_ms):
            raise ValueError("invalid number: more than 64 bits")


class ManagedNetwork(msgspec.Struct, rename="camel", omit_defaults=True):
    """The ports of proxies that exist already; Linux does not need them."""

    loopback_ports: list[Port] = []
    allow_local_binding: bool = False


class ConnectionAttempt(msgspec.Struct, rename="camel", frozen=True):
    """A host and port that a process wants to reach."""

    protocol: Protocol
    host: str
    port: int


class PolicyRequestParams(msgspec.Struct, rename="camel"):
    process_id: str
    request: ConnectionAttempt


class Allow(msgspec.Struct, tag="allow"):
    """Allow the connection."""


class Deny(msgspec.Struct, tag="deny"):
    """Refuse the connection; *reason* is shown to the process."""

    reason: str


class Ask(msgspec.Struct, tag="ask"):
    """Refuse the connection, and tell the process that a person has to be asked first."""

    reason: str


class PolicyRequestResult(msgspec.Struct, rename="camel"):
    decision: Allow | Deny | Ask


class PolicyDecisionEvent(msgspec.Struct, rename="camel"):
    """The outcome of one attempt."""

    process_id: str
    timestamp: str
    scope: Scope
    decision: Decision
    source: Source
    reason: str
    protocol: Protocol
    host: str
    port: int
    # The HTTP method; SOCKS has none.
    method: str | UnsetType = UNSET
    client: str | UnsetType = UNSET
    policy_override: bool = False


# The server asks whether a process may reach a host.
POLICY_REQUEST = Method(
    "network/policyRequest",
    PolicyRequestParams,
    PolicyRequestResult,
    family="network",
    dialect="undocumented",
)
# The server tells what was decided about a host.
POLICY_DECISION = Event("network/policyDecision", PolicyDecisionEvent, dialect="undocumented")
