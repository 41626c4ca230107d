"""What an executor needs to know to be reachable."""

from __future__ import annotations

from collections.abc import Mapping
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
    # For people; it is sent nowhere.
    name: str = DEFAULT_NAME
    # None takes what the environment of the process has, in the reference's order.
    credentials: Credentials | None = None
    uses_agent_identity: bool = False
    # In the older relay the rendezvous can read everything: never the result of a failure.
    relay: Literal["noise", "plaintext"] = "noise"
    # What ids are called in the oldest registries: `--executor-id` instead of `--environment-id`.
    is_executor_id: bool = False
    # None makes one that lasts as long as the call.
    identity: KeyPair | None = None
    # Told to a registry of one's own, beside what else there is to say of this machine.
    labels: Mapping[str, str] = {}
    limits: Limits = DEFAULT_LIMITS

    def __repr__(self) -> str:
        return f"RemoteEnvironmentConfig({self.registry_url!r}, {self.environment_id!r})"
