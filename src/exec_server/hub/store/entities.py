"""What the registry remembers, as plain values."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

# What a token lets its holder do: offer environments, use them, see that they are there, watch the
# whole registry.
Right = Literal["enrol", "connect", "list", "observe"]
RIGHTS: tuple[Right, ...] = ("enrol", "connect", "list", "observe")

# Longer facts are cut, and further labels are dropped.
_FACT_CHARACTERS = 200
_FACT_LABELS = 32


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; its secret is not."""

    id: str
    # Who holds it: a person or a machine.
    principal: str
    rights: tuple[Right, ...]
    # Names of environments, with `*` and `?`.
    patterns: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    # Enrols one environment; which one, once it has.
    is_once: bool = False
    bound_to: str | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class ExecutorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor may tell of itself when it registers; nobody has checked it."""

    version: str | None = None
    platform: str | None = None
    sandbox: str | None = None
    labels: dict[str, str] = {}


def read_facts(value: Any) -> ExecutorFacts:
    """The facts in a request, shortened. A value that is not valid gives empty facts."""
    try:
        facts = msgspec.convert(value or {}, ExecutorFacts)
    except msgspec.ValidationError:
        return ExecutorFacts()
    labels = list(facts.labels.items())[:_FACT_LABELS]
    return ExecutorFacts(
        version=_short(facts.version),
        platform=_short(facts.platform),
        sandbox=_short(facts.sandbox),
        labels={_cut(name): _cut(text) for name, text in labels},
    )


def _short(text: str | None) -> str | None:
    return None if text is None else _cut(text)


def _cut(text: str) -> str:
    return text[:_FACT_CHARACTERS]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The newest registration under a name."""

    id: str
    registration_id: str
    # Counts the registrations.
    generation: int
    # A key object as JSON; None in the older relay.
    executor_key: str | None
    token_id: str
    principal: str
    registered_at: float
    facts: ExecutorFacts = ExecutorFacts()

    @property
    def is_plaintext(self) -> bool:
        return self.executor_key is None


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """That one harness key may reach one registration, once."""

    id: str
    environment_id: str
    registration_id: str
    harness_key: str
    token_id: str
    expires_at: float


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, when, from where; never with which content."""

    at: float
    name: str
    principal: str = ""
    token_id: str = ""
    environment_id: str = ""
    address: str = ""
    detail: str = ""


class Pledge(msgspec.Struct, frozen=True, kw_only=True):
    """What one machine tells the other through us; we do not know what proves it."""

    # Of the key that the executor serves with.
    fingerprint: str = ""
    proof: str = ""
    # Whether it is served as soon as the code was typed.
    serves: bool = False


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A code that waits to be typed, or was typed a moment ago."""

    digest: bytes
    environment_id: str
    # The token that is behind it, or that is made when it is typed.
    token_id: str
    principal: str
    expires_at: float
    fingerprint: str = ""
    proof: str = ""
    # The digest of what its machine asks about it with.
    ticket: bytes = b""
    # Whether it was given without a token: the ticket becomes one when the code is typed.
    is_open: bool = False
    serves: bool = False
    claimed_at: float | None = None
