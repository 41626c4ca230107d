"""The options of `connect` and `environments` as keyword arguments.

This file is generated: change the structs in connect_options.py and run `scripts/sync_twin.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from exec_server.client.network_policy import OnPolicyDecision, OnPolicyRequest
    from exec_server.client.session_link import ConnectionState
    from exec_server.limits import Limits


class ConnectKeywords(TypedDict, total=False):
    """Keyword arguments for ConnectOptions."""

    client_name: str
    call_timeout: float | None
    recover_for: float | None
    token: str | Callable[[], str] | None
    pin: str | None
    session_token: str | None
    take_over: bool
    reconnect: bool
    on_state: Callable[[ConnectionState], None] | None
    on_policy_request: OnPolicyRequest | None
    on_policy_decision: OnPolicyDecision | None
    ca_file: str | None
    client_cert: str | None
    client_key: str | None
    ssl_context: SSLContext | None
    limits: Limits


class UrlKeywords(ConnectKeywords, total=False):
    """Keyword arguments for UrlOptions."""

    connect_timeout: float
    initialize_timeout: float
    resume_session_id: str | None
