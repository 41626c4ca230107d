"""Requests to the environment registry, of executors and of harnesses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from exec_server.errors import ConfigurationError, RegistryError, RelayError
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol.registry import (
    AUTHENTICATION_UNAVAILABLE,
    CONNECT,
    ENVIRONMENT_OFFLINE,
    FACTS,
    REGISTER,
    SECURITY_PROFILE,
    STREAM_ID_HEADER,
    VALIDATE,
    Field,
    environment_path,
)
from exec_server.relay.keys import PublicKeys
from exec_server.remote.credentials.credentials import CredentialExpired, Credentials
from exec_server.remote.registry_http import Http, RegistryAnswer
from exec_server.remote.trace_headers import trace_headers

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 4096


class Registration(msgspec.Struct, frozen=True):
    """The URL at which an executor waits for harnesses, and the id of the registration."""

    # It contains a signature, so it is a secret.
    url: str
    id: str

    def __repr__(self) -> str:
        return f"Registration(id={self.id!r})"


class Bundle(msgspec.Struct, frozen=True):
    """The address and keys for one connection of a harness. It can be used once."""

    url: str
    registration_id: str
    executor_key: PublicKeys
    authorization: str

    def __repr__(self) -> str:
        return f"Bundle(registration_id={self.registration_id!r})"


class Registry:
    """One environment at one registry, as the holder of *credentials* sees it."""

    def __init__(
        self,
        base_url: str,
        environment_id: str,
        credentials: Credentials,
        *,
        http: Http,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        """Raise ConfigurationError for a blank id, and for a URL the credentials must not go to."""
        self.environment_id = environment_id.strip()
        if not self.environment_id:
            raise ConfigurationError("the environment id is blank")
        credentials.check_url(base_url)
        self._base = base_url.strip().rstrip("/")
        self._credentials = credentials
        self._http = http
        self._limits = limits

    # The executor.

    async def register(self, key: PublicKeys) -> Registration:
        """Register as the executor of the environment. Raises RegistryError."""
        body = {
            Field.SECURITY_PROFILE: SECURITY_PROFILE,
            Field.EXECUTOR_PUBLIC_KEY: key.to_object(),
        }
        answer = await self._ask(REGISTER, body, seconds=self._limits.registry_timeout)
        self._check_profile(answer)
        registration_id = _text(answer, Field.EXECUTOR_REGISTRATION_ID, may_be_empty=True)
        return Registration(_text(answer, "url", may_be_empty=True), registration_id)

    async def tell_facts(self, registration: Registration, facts: Mapping[str, Any]) -> None:
        """Send *facts* about this executor to our own registry; a refusal is only logged."""
        body = {Field.EXECUTOR_REGISTRATION_ID: registration.id, "facts": facts}
        try:
            await self._ask(FACTS, body, seconds=self._limits.registry_timeout)
        except (RegistryError, CredentialExpired) as exc:
            status = exc.status if isinstance(exc, RegistryError) else None
            logger.info(
                "the registry did not take the facts about this executor (status %s)", status
            )

    async def register_plaintext(self, *, kind: str = "environment") -> Registration:
        """Register for the older relay, without keys. *kind* is `executor` for old registries."""
        answer = await self._ask(REGISTER, None, seconds=self._limits.registry_timeout, kind=kind)
        if answer.get(f"{kind}_id", self.environment_id) != self.environment_id:
            raise RegistryError(f"the environment registry answered for another {kind}")
        return Registration(_text(answer, "url", may_be_empty=True), "")

    async def validate(
        self, registration_id: str, stream_id: str, key: PublicKeys, authorization: str
    ) -> bool:
        """True if the registry clearly admits this harness; every other answer is False."""
        body = {
            Field.EXECUTOR_REGISTRATION_ID: registration_id,
            Field.HARNESS_PUBLIC_KEY: key.to_object(),
            Field.HARNESS_KEY_AUTHORIZATION: authorization,
        }
        try:
            answer = await self._ask(
                VALIDATE,
                body,
                seconds=self._limits.registry_timeout,
                headers=_stream_header(stream_id),
            )
        except CredentialExpired:
            logger.warning("a harness is refused because our own credential has expired")
            return False
        except RegistryError as exc:
            # The words of the error could repeat the authorization.
            logger.warning("the registry did not validate a harness (status %s)", exc.status)
            return False
        return answer.get("valid") is True

    # The harness.

    async def connect(self, key: PublicKeys, *, seconds: float) -> Bundle:
        """Ask for a connection to the executor. Raises RegistryError."""
        answer = await self._ask(
            CONNECT, {Field.HARNESS_PUBLIC_KEY: key.to_object()}, seconds=seconds
        )
        self._check_profile(answer)
        try:
            executor_key = PublicKeys.from_object(answer.get(Field.EXECUTOR_PUBLIC_KEY))
        except RelayError as exc:
            raise _malformed(str(exc)) from None
        return Bundle(
            _text(answer, "url"),
            _text(answer, Field.EXECUTOR_REGISTRATION_ID),
            executor_key,
            _text(answer, Field.HARNESS_KEY_AUTHORIZATION),
        )

    def _check_profile(self, answer: dict[str, Any]) -> None:
        if answer.get("environment_id") != self.environment_id:
            raise _malformed("it is for another environment")
        if answer.get(Field.SECURITY_PROFILE) != SECURITY_PROFILE:
            raise _malformed(f"its security profile is not {SECURITY_PROFILE}")

    async def _ask(
        self,
        operation: str,
        body: Any,
        *,
        seconds: float,
        headers: dict[str, str] | None = None,
        kind: str = "environment",
    ) -> dict[str, Any]:
        url = self._base + environment_path(self.environment_id, operation, kind=kind)
        own = {**self._credentials.headers(), **(headers or {})}
        sent = {"accept": "*/*", **trace_headers(), **own}
        try:
            answer = await self._http.request("POST", url, headers=sent, body=body, seconds=seconds)
        except RegistryError as exc:
            raise RegistryError(f"environment registry request failed: {exc}") from exc
        if not answer.is_success:
            raise _refusal(answer)
        decoded = answer.json()
        if not isinstance(decoded, dict):
            raise _malformed("it is not a JSON object")
        return decoded


def may_register_later(error: RegistryError) -> bool:
    """True if an executor registers again later: the registry could not check its credential."""
    return error.status == HTTPStatus.BAD_GATEWAY and error.error_code == AUTHENTICATION_UNAVAILABLE


def may_register_again(error: RegistryError) -> bool:
    """True if an executor with sessions registers again: the registry has not refused it."""
    return error.status is None or _may_pass(error.status)


def may_connect_later(error: RegistryError) -> bool:
    """True if a harness tries again later: the registry or the executor may be unavailable."""
    status = error.status
    if status is None:
        return True
    if status == HTTPStatus.CONFLICT:
        return is_executor_offline(error)
    return _may_pass(status)


def is_executor_offline(error: RegistryError) -> bool:
    """True if the registry has answered that no executor is connected."""
    return error.error_code == ENVIRONMENT_OFFLINE


def _may_pass(status: int) -> bool:
    return status >= 500 or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def _refusal(answer: RegistryAnswer) -> RegistryError:
    status = answer.status
    code, message = _error_body(answer)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        text = message or "empty error body"
        prefix = "environment registry authentication error"
    else:
        text = message or "empty or malformed error body"
        shown = ", ".join(filter(None, (_status_text(status), code)))
        prefix = f"environment registry request failed ({shown})"
    return RegistryError(f"{prefix}: {text}", status=status, error_code=code)


def _error_body(answer: RegistryAnswer) -> tuple[str | None, str]:
    decoded = answer.json()
    error = decoded.get("error") if isinstance(decoded, dict) else None
    if isinstance(error, dict):
        code, message = error.get("code"), error.get("message")
        code = code if isinstance(code, str) else None
        return code, message if isinstance(message, str) else (code or "")
    text = answer.body.decode("utf-8", "replace").strip()[:_SHOWN_CHARACTERS]
    # Whatever the registry sends becomes one line on stderr.
    return None, " ".join(text.split())


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _malformed(why: str) -> RegistryError:
    # The status says that the registry has answered: another request would not help.
    return RegistryError(f"environment registry answer is malformed: {why}", status=200)


def _text(answer: dict[str, Any], name: str, *, may_be_empty: bool = False) -> str:
    value = answer.get(name)
    if not isinstance(value, str) or not (may_be_empty or value.strip()):
        raise _malformed(f"`{name}` is missing")
    return value


def _stream_header(stream_id: str) -> dict[str, str]:
    try:
        return {STREAM_ID_HEADER: str(uuid.UUID(stream_id))}
    except ValueError:
        return {}
