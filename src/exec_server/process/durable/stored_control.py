"""Who drives a durable process, as the next server has to know it."""

from __future__ import annotations

import msgspec

from exec_server.protocol.participants import Kind


class StoredControl(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The epoch of the lease, its owner and its holder."""

    epoch: int
    owner_kind: Kind = "agent"
    owner_name: str = ""
    # None if the session that has started the process drives it.
    driver_kind: Kind | None = None
    driver_name: str = ""
    driver_principal: str = ""
