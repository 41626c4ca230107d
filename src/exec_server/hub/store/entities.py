"""The records that the registry keeps, as plain values."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from exec_server.access.token_secrets import is_good

# The rights of a token: register environments (enrol), connect to them, list them, and see the
# status of the whole registry (observe).
Right = Literal["enrol", "connect", "list", "observe"]
RIGHTS: tuple[Right, ...] = ("enrol", "connect", "list", "observe")

# Longer facts are cut, and further labels are dropped.
_FACT_CHARACTERS = 200
_FACT_LABELS = 32


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret, which the registry does not keep."""

    id: str
    # The person or machine that holds it.
    principal: str
    rights: tuple[Right, ...]
    # Names of environments, which may contain `*` and `?`.
    patterns: tuple[str, ...]
    created_at: float
    expires_at: float | None = None
    # True if it may enrol only one environment.
    is_once: bool = False
    # The environment that it has enrolled.
    bound_to: str | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None
    # The address of the last use.
    last_used_from: str = ""
    # The device that holds it, if it was paired.
    label: str = ""

    def is_good(self, now: float) -> bool:
        """True if it is neither revoked nor expired."""
        return is_good(now, expires_at=self.expires_at, revoked_at=self.revoked_at)


class ExecutorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that an executor reports about itself. The registry does not check them."""

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
    """The newest registration of an environment."""

    id: str
    registration_id: str
    # The number of registrations so far.
    generation: int
    # The key object as JSON; None in the older relay, which is not encrypted.
    executor_key: str | None
    token_id: str
    principal: str
    registered_at: float
    facts: ExecutorFacts = ExecutorFacts()

    @property
    def is_plaintext(self) -> bool:
        return self.executor_key is None


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """Permission for one harness key to connect to one registration, once."""

    id: str
    environment_id: str
    registration_id: str
    harness_key: str
    token_id: str
    expires_at: float


class Pledge(msgspec.Struct, frozen=True, kw_only=True):
    """Data of an offer that one machine passes to the other through the registry.

    The registry does not know the secret behind the proof.
    """

    # The fingerprint of the executor's key.
    fingerprint: str = ""
    proof: str = ""
    # True if the environment is served as soon as the code was typed.
    serves: bool = False


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A pairing code that waits to be typed, or was typed less than a minute ago."""

    digest: bytes
    environment_id: str
    # The token that was used for the offer, or the one that is made when the code is typed.
    token_id: str
    principal: str
    expires_at: float
    fingerprint: str = ""
    proof: str = ""
    # The digest of the ticket with which the offering machine asks about the code.
    ticket: bytes = b""
    # True if the offer was made without a token. The ticket becomes a token when the code is typed.
    is_open: bool = False
    serves: bool = False
    claimed_at: float | None = None
    # The answer of the machine on which the code was typed, for the other machine: its key and the
    # proof of it, or that it refuses. It is empty until the answer comes.
    reply: str = ""
