"""The requests of executors and harnesses: register, facts, validate and connect."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from exec_server.access.token_secrets import digest_of, new_id
from exec_server.errors import RelayError
from exec_server.hub.access.refusals import RegistryRefusal
from exec_server.hub.access.signing import Pass, Role, Signer
from exec_server.hub.access.tokens import TokenGate
from exec_server.hub.http.rendezvous import Rendezvous
from exec_server.hub.observe.audit import Audit
from exec_server.hub.store import Store
from exec_server.hub.store.entities import (
    AccessToken,
    Authorization,
    Environment,
    ExecutorFacts,
    read_facts,
)
from exec_server.hub.store.names import is_name
from exec_server.limits import Limits
from exec_server.protocol.registry import ENVIRONMENT_OFFLINE, SECURITY_PROFILE, Field
from exec_server.relay.keys import PublicKeys


class Caller(msgspec.Struct, frozen=True):
    """The client of a request, and the URL by which it reaches us."""

    authorization: str | None
    address: str
    # The beginning of our own URLs: `wss://registry.example.net`.
    base_url: str

    def __repr__(self) -> str:
        return f"Caller({self.address!r})"


class RegistryApi:
    """Every method returns the JSON of the answer, or raises RegistryRefusal."""

    def __init__(
        self,
        store: Store,
        gate: TokenGate,
        signer: Signer,
        rendezvous: Rendezvous,
        audit: Audit,
        *,
        limits: Limits,
        clock: Callable[[], float],
        allows_plaintext: bool = False,
    ) -> None:
        self._store = store
        self._gate = gate
        self._signer = signer
        self._rendezvous = rendezvous
        self._audit = audit
        self._limits = limits
        self._clock = clock
        self._allows_plaintext = allows_plaintext

    # Executors.

    async def register(self, caller: Caller, environment_id: str, body: bytes) -> dict[str, Any]:
        """Register an executor. A request without a body asks for the older relay."""
        token = await self._enrolled(caller, environment_id)
        if not body.strip():
            registration = await self._register_plaintext(caller, environment_id, token)
            return {"environment_id": environment_id, **registration}
        request = _object(body)
        if request.get(Field.SECURITY_PROFILE) != SECURITY_PROFILE:
            raise _bad("unsupported_profile", f"the security profile has to be {SECURITY_PROFILE}")
        key = _key(request.get(Field.EXECUTOR_PUBLIC_KEY))
        registered = await self._new_registration(
            caller, environment_id, token, executor_key=key, facts=read_facts(request.get("facts"))
        )
        return {
            "environment_id": environment_id,
            Field.SECURITY_PROFILE: SECURITY_PROFILE,
            **registered,
        }

    async def register_executor(self, caller: Caller, executor_id: str) -> dict[str, Any]:
        """Register with the older API, in which environments are called executors."""
        token = await self._enrolled(caller, executor_id)
        registered = await self._register_plaintext(caller, executor_id, token)
        return {"executor_id": executor_id, **registered}

    async def tell_facts(self, caller: Caller, environment_id: str, body: bytes) -> dict[str, Any]:
        """Keep the facts that the executor of the newest registration reports."""
        await self._admit(caller, environment_id, "enrol")
        request = _object(body)
        registration_id = request.get(Field.EXECUTOR_REGISTRATION_ID)
        if not isinstance(registration_id, str):
            raise _bad("invalid_request", "a registration id is needed")
        is_newest = await self._store.set_facts(
            environment_id,
            registration_id=registration_id,
            facts=read_facts(request.get("facts")),
        )
        if not is_newest:
            raise RegistryRefusal(409, "superseded", "this is not the newest registration")
        return {}

    async def validate(self, caller: Caller, environment_id: str, body: bytes) -> dict[str, Any]:
        """Tell an executor whether a harness may connect to it."""
        await self._admit(caller, environment_id, "enrol")
        request = _object(body)
        registration_id = request.get(Field.EXECUTOR_REGISTRATION_ID)
        authorization = request.get(Field.HARNESS_KEY_AUTHORIZATION)
        if not isinstance(registration_id, str) or not isinstance(authorization, str):
            raise _bad("invalid_request", "a registration id and an authorization are needed")
        key = _key(request.get(Field.HARNESS_PUBLIC_KEY))
        return {"valid": await self._is_valid(environment_id, registration_id, key, authorization)}

    async def _enrolled(self, caller: Caller, environment_id: str) -> AccessToken:
        token = await self._admit(caller, environment_id, "enrol")
        await self._gate.bind(token, environment_id, address=caller.address)
        return token

    async def _register_plaintext(
        self, caller: Caller, environment_id: str, token: AccessToken
    ) -> dict[str, Any]:
        if not self._allows_plaintext:
            raise _bad("plaintext_not_allowed", "this registry serves only encrypted streams")
        return await self._new_registration(
            caller, environment_id, token, executor_key=None, facts=ExecutorFacts()
        )

    async def _new_registration(
        self,
        caller: Caller,
        environment_id: str,
        token: AccessToken,
        *,
        executor_key: str | None,
        facts: ExecutorFacts,
    ) -> dict[str, Any]:
        registration_id = secrets.token_urlsafe(16)
        generation = await self._store.register(
            environment_id,
            registration_id=registration_id,
            executor_key=executor_key,
            token=token,
            facts=facts,
            now=self._clock(),
        )
        if generation is None:
            raise RegistryRefusal(
                409, "environment_taken", "this name belongs to another principal"
            )
        await self._rendezvous.supersede(environment_id, generation)
        await self._audit.note(
            "registered",
            token=token,
            environment_id=environment_id,
            address=caller.address,
            detail=f"generation {generation}",
        )
        url = self._url(
            caller.base_url,
            "environment",
            environment_id,
            registration_id,
            token,
            self._limits.hub_executor_url_seconds,
        )
        return {"url": url, Field.EXECUTOR_REGISTRATION_ID: registration_id}

    async def _is_valid(
        self, environment_id: str, registration_id: str, key: str, authorization: str
    ) -> bool:
        environment = await self._store.environment(environment_id)
        if environment is None or environment.registration_id != registration_id:
            return False
        now = self._clock()
        found = await self._store.use_authorization(
            digest_of(authorization), registration_id=registration_id, harness_key=key, now=now
        )
        if found is None or found.environment_id != environment_id:
            return False
        return not await self._store.ended_tokens({found.token_id}, now=now)

    # Harnesses.

    async def connect(self, caller: Caller, environment_id: str, body: bytes) -> dict[str, Any]:
        """Give a harness all that it needs to connect once."""
        token = await self._admit(caller, environment_id, "connect")
        harness_key = _key(_object(body).get(Field.HARNESS_PUBLIC_KEY))
        environment = await self._store.environment(environment_id)
        if environment is None:
            raise RegistryRefusal(
                404, "environment_not_found", "this environment is not registered"
            )
        if environment.executor_key is None:
            raise RegistryRefusal(
                409, "plaintext_environment", "this environment is of the older relay"
            )
        presence = await self._rendezvous.presence(environment)
        if presence is None:
            raise RegistryRefusal(409, ENVIRONMENT_OFFLINE, "the executor is not connected")
        await self._gate.bind(token, environment_id, address=caller.address)
        authorization, secret = await self._authorize(environment, harness_key, token)
        await self._audit.note(
            "connect", token=token, environment_id=environment_id, address=caller.address
        )
        # The URL leads to the executor's node itself, if that node has a public URL.
        base_url = presence.url or caller.base_url
        url = self._url(
            base_url,
            "harness",
            environment_id,
            environment.registration_id,
            token,
            self._limits.hub_harness_url_seconds,
            authorization_id=authorization.id,
        )
        return {
            "environment_id": environment_id,
            Field.SECURITY_PROFILE: SECURITY_PROFILE,
            "url": url,
            Field.EXECUTOR_REGISTRATION_ID: environment.registration_id,
            Field.EXECUTOR_PUBLIC_KEY: msgspec.json.decode(environment.executor_key),
            Field.HARNESS_KEY_AUTHORIZATION: secret,
        }

    async def plaintext_harness(
        self, caller: Caller, environment_id: str
    ) -> tuple[Environment, AccessToken]:
        """Check a harness of the older relay, which has a token instead of a signed URL."""
        token = await self._admit(caller, environment_id, "connect")
        environment = await self._store.environment(environment_id)
        if environment is None:
            raise RegistryRefusal(
                404, "environment_not_found", "this environment is not registered"
            )
        if not environment.is_plaintext:
            # An encrypted environment must never be reached without encryption.
            raise RegistryRefusal(
                403, "noise_environment", "this environment serves only encrypted streams"
            )
        await self._gate.bind(token, environment_id, address=caller.address)
        return environment, token

    async def _authorize(
        self, environment: Environment, harness_key: str, token: AccessToken
    ) -> tuple[Authorization, str]:
        secret = secrets.token_urlsafe(32)
        authorization = Authorization(
            id=new_id(),
            environment_id=environment.id,
            registration_id=environment.registration_id,
            harness_key=harness_key,
            token_id=token.id,
            expires_at=self._clock() + self._limits.hub_harness_url_seconds,
        )
        await self._store.add_authorization(authorization, digest_of(secret))
        return authorization, secret

    # Executors and harnesses.

    async def _admit(self, caller: Caller, environment_id: str, right: Any) -> AccessToken:
        if not is_name(environment_id, limits=self._limits):
            raise _bad("invalid_environment_id", "names are letters, digits, `-`, `_` and `.`")
        return await self._gate.admit(
            caller.authorization, right, address=caller.address, environment_id=environment_id
        )

    def _url(
        self,
        base_url: str,
        role: Role,
        environment_id: str,
        registration_id: str,
        token: AccessToken,
        seconds: float,
        *,
        authorization_id: str = "",
    ) -> str:
        granted = Pass(
            environment_id,
            role,
            registration_id,
            token.id,
            int(self._clock() + seconds),
            authorization_id,
        )
        return base_url + self._signer.target(granted)


def _object(body: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise _bad("invalid_request", "the body is not a JSON object")
    return decoded


def _key(value: Any) -> str:
    """A key object in a canonical spelling, so that two of them can be compared."""
    try:
        keys = PublicKeys.from_object(value)
    except RelayError as exc:
        raise _bad("invalid_public_key", str(exc)) from None
    return msgspec.json.encode(keys.to_object()).decode()


def _bad(code: str, message: str) -> RegistryRefusal:
    return RegistryRefusal(400, code, message)
