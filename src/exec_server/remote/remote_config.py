"""The settings of an executor that serves through a registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.keys import KeyPair
from exec_server.remote.credentials.credentials import Credentials

DEFAULT_NAME = "codex-exec-server"


class RemoteEnvironmentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An environment at a registry, to be served from here."""

    registry_url: str
    environment_id: str
    # A name for people to read; it is not sent.
    name: str = DEFAULT_NAME
    # None means the credential in the environment of the process, in the reference's order.
    credentials: Credentials | None = None
    uses_agent_identity: bool = False
    # The rendezvous can read everything in the older relay, which is never chosen automatically.
    relay: Literal["noise", "plaintext"] = "noise"
    # True for `--executor-id`, the name of the option for the oldest registries.
    is_executor_id: bool = False
    # None makes a new key pair for this call.
    identity: KeyPair | None = None
    # A file with the keys of the harnesses that are served. None means that the registry alone
    # decides.
    authorized_harnesses: Path | None = None
    # A file to which audit events are appended, one line of JSON each.
    audit_log: Path | None = None
    # Labels are sent to our own registry, together with facts about this machine.
    labels: Mapping[str, str] = {}
    limits: Limits = DEFAULT_LIMITS

    def __repr__(self) -> str:
        return f"RemoteEnvironmentConfig({self.registry_url!r}, {self.environment_id!r})"
