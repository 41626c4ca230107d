"""Who talks to whom: a column of the table each."""

from __future__ import annotations

from typing import Literal, NamedTuple

Server = Literal["reference", "ours"]
Way = Literal["direct", "stdio", "relay"]

PINNED = "0.166.0"
# The first release with `exec-server`, and two on the way; each with a model that it knows to
# have the tools which the scenarios use. `scripts/interop.sh` installs them.
OLDER = {"0.120.0": "gpt-5.1", "0.135.0": "gpt-5.5", "0.150.0": "gpt-5.5"}
PINNED_MODEL = "gpt-5.5"


class Column(NamedTuple):
    """A server, how it is reached, and which Codex reaches it."""

    server: Server
    way: Way
    client: str = PINNED

    @property
    def title(self) -> str:
        if self.client != PINNED:
            return f"{self.server}, {self.way}, from {self.client}"
        return f"{self.server}, {self.way}"

    @property
    def model(self) -> str:
        return OLDER.get(self.client, PINNED_MODEL)


WAYS: tuple[Way, ...] = ("direct", "stdio", "relay")
SERVERS: tuple[Server, ...] = ("reference", "ours")
TODAY = [Column(server, way) for server in SERVERS for way in WAYS]
SKEWED = [Column("ours", "direct", client) for client in OLDER]
COLUMNS = [*TODAY, *SKEWED]


class Scenario(NamedTuple):
    """A row of the table."""

    title: str
    ways: tuple[Way, ...]
    # Whether older clients are tried as well.
    is_old: bool
    # What is known not to work, by server or version of the client, and why.
    fails: dict[str, str]

    def columns(self) -> list[Column]:
        """Where it is tried."""
        today = [column for column in TODAY if column.way in self.ways]
        return [*today, *(SKEWED if self.is_old else [])]

    def reason(self, column: Column) -> str | None:
        """Why it is known to fail there."""
        for name in (column.title, column.client, column.server):
            if name in self.fails:
                return self.fails[name]
        return None
