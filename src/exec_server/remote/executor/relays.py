"""The two relays that an executor can serve; one is chosen for the whole process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.relay.effects import Effect, Validate
from exec_server.relay.keys import SEED_BYTES, KeyPair
from exec_server.relay.mux import Mux
from exec_server.relay.plaintext import PlaintextMux
from exec_server.relay.records import RECORD_BYTES
from exec_server.remote.authorized_harnesses import AuthorizedHarnesses
from exec_server.remote.executor.executor_socket import AnyMux
from exec_server.remote.executor.refused_harnesses import RefusedHarnesses
from exec_server.remote.registry_client import Registration, Registry
from exec_server.transport.frames import Sizes

# Output in bulk is read in chunks that fill this many records, in base64 and with what stands
# around them in the message. Few messages and full records take a fifth less processor time on both
# ends, and more in the relay, than chunks of 64 KiB. A pipe holds 256 KiB.
_OUTPUT_RECORDS = 4
_AROUND_OUTPUT = 512
_OUTPUT_BYTES = (_OUTPUT_RECORDS * RECORD_BYTES - _AROUND_OUTPUT) // 4 * 3


def noise_output(limits: Limits) -> Limits:
    """Return *limits* with chunks of output in bulk that fill their records."""
    return replace(limits, bulk_chunk_bytes=max(limits.bulk_chunk_bytes, _OUTPUT_BYTES))


class Relay(Protocol):
    """How to register, and how to treat the frames of a socket."""

    sizes: Sizes
    # True if a registration can be used for one socket only.
    registers_each_time: bool
    # True if the rendezvous gives a sign of life soon when it is pinged, as that of our own
    # registry does. Then a short silence means that the socket is dead.
    answers_soon: bool
    environment_id: str

    async def register(self) -> Registration: ...

    def new_mux(self, registration: Registration) -> AnyMux: ...

    async def judge(self, registration: Registration, question: Validate) -> bool: ...


class NoiseRelay:
    """Streams that are encrypted from end to end. The key lives as long as this object."""

    registers_each_time = False

    def __init__(
        self,
        registry: Registry,
        *,
        identity: KeyPair | None = None,
        facts: Mapping[str, Any] | None = None,
        authorized: AuthorizedHarnesses | None = None,
        refused: RefusedHarnesses | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """*facts* are sent after each registration; None for a registry that is not ours.

        Without *authorized*, the registry alone decides which harnesses are admitted. The keys that
        are not in it are told to *refused*.
        """
        self._registry = registry
        self.environment_id = registry.environment_id
        self._facts = facts
        self.answers_soon = facts is not None
        self._authorized = authorized
        self._refused = refused or RefusedHarnesses(registry.environment_id, limits=limits)
        self._identity = identity or KeyPair(os.urandom(SEED_BYTES))
        self._limits = limits
        most = limits.relay_frame_bytes
        self.sizes = Sizes(frame_bytes=most, message_bytes=most, sent_frame_bytes=most)

    async def register(self) -> Registration:
        registration = await self._registry.register(self._identity.public)
        if self._facts is not None:
            await self._registry.tell_facts(registration, self._facts)
        return registration

    def new_mux(self, registration: Registration) -> AnyMux:
        return Mux(
            self._identity,
            environment_id=self._registry.environment_id,
            registration_id=registration.id,
            random_bytes=os.urandom,
            limits=self._limits,
        )

    async def judge(self, registration: Registration, question: Validate) -> bool:
        if not self._is_authorized(question):
            return False
        return await self._registry.validate(
            registration.id, question.stream_id, question.harness_key, question.authorization
        )

    def _is_authorized(self, question: Validate) -> bool:
        """True unless there is a file of keys and this one is not in it.

        The handshake has proved that the harness has the key, so a registry that lies cannot
        pretend to be another harness.
        """
        if self._authorized is None:
            return True
        fingerprint = question.harness_key.fingerprint
        if self._authorized.admits(fingerprint):
            return True
        self._refused.note(
            fingerprint, question.stream_id, f"the key is not in {self._authorized.path}"
        )
        return False


class PlaintextRelay:
    """The older relay, which the rendezvous can read. It is used only if asked for by name."""

    registers_each_time = True
    answers_soon = False

    def __init__(
        self, registry: Registry, *, kind: str = "environment", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._registry = registry
        self.environment_id = registry.environment_id
        self._kind = kind
        self._limits = limits
        self.sizes = plaintext_sizes(limits)

    async def register(self) -> Registration:
        return await self._registry.register_plaintext(kind=self._kind)

    def new_mux(self, registration: Registration) -> AnyMux:
        return _TimelessMux(limits=self._limits)

    async def judge(self, registration: Registration, question: Validate) -> bool:
        return False


def plaintext_sizes(limits: Limits) -> Sizes:
    """Return the sizes of the older relay: a frame holds a whole message and some bytes more."""
    return Sizes(
        frame_bytes=limits.frame_bytes,
        message_bytes=limits.message_bytes + limits.relay_frame_bytes,
        sent_frame_bytes=limits.frame_bytes,
    )


class _TimelessMux(PlaintextMux):
    """The older mux with the methods of the other one; it asks no questions."""

    def receive(self, data: bytes | memoryview, *, now: float = 0.0) -> Sequence[Effect]:
        return super().receive(data)

    def settle(self, ticket: int, *, is_valid: bool, now: float) -> Sequence[Effect]:
        return ()

    def next_deadline(self) -> float | None:
        return None

    def expire(self, *, now: float) -> Sequence[Effect]:
        return ()
