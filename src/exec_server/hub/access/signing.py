"""Rendezvous URLs: they allow one socket in one role until a time. They are signed, not stored."""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from exec_server.protocol.registry import ROLE, rendezvous_path

Role = Literal["environment", "harness"]

_VERSION = "1"
_KEY_ID_DIGITS = 8
_BUS_NAME_DIGITS = 16


class Pass(msgspec.Struct, frozen=True):
    """The permission in a signed URL."""

    environment_id: str
    role: Role
    registration_id: str
    # The token with which the URL was requested. Its revocation ends the socket.
    token_id: str
    expires_at: int
    # The authorization of a harness, which allows one socket; empty for executors.
    authorization_id: str = ""


class PassRefused(Exception):
    """A URL is not valid. The text is one of the reasons that OpenAI Codex's own clients know."""


class Signer:
    """Signs and checks URLs with the key that all nodes of a registry share."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._key_id = hashlib.sha256(b"key id" + key).hexdigest()[:_KEY_ID_DIGITS]

    @property
    def bus_name(self) -> str:
        """The name under which nodes with the same key find each other on the bus.

        Nodes of the first release, whose messages had no codes, have another name.
        """
        return hmac.digest(self._key, b"bus with codes", "sha256").hex()[:_BUS_NAME_DIGITS]

    @property
    def bus_key(self) -> bytes:
        """The key of the codes of messages between nodes, derived with HKDF (RFC 5869)."""
        extracted = hmac.digest(bytes(hashlib.sha256().digest_size), self._key, "sha256")
        return hmac.digest(extracted, b"exec-server registry bus" + b"\x01", "sha256")

    def __repr__(self) -> str:
        return f"Signer({self._key_id})"

    def target(self, granted: Pass) -> str:
        """The path and query of the URL for *granted*."""
        query = self._query(granted)
        query["sig"] = self._sign(granted.environment_id, query)
        path = rendezvous_path(quote(granted.environment_id, safe=""))
        return f"{path}?{urlencode(query)}"

    def judge(self, environment_id: str, query_string: str, *, now: float) -> Pass:
        """The pass in the URL of a request. Raises PassRefused."""
        query = _parse(query_string)
        role = _required(query, ROLE)
        if role not in ("environment", "harness"):
            raise PassRefused("invalid_role")
        if query.get("v") != _VERSION:
            raise PassRefused("missing_version")
        expires_at = _expiry(_required(query, "exp", reason="missing_expiry"))
        signature = _required(query, "sig", reason="missing_signature")
        granted = Pass(
            environment_id,
            role,  # type: ignore[arg-type]
            query.get("reg", ""),
            query.get("tok", ""),
            expires_at,
            query.get("auth", ""),
        )
        if query.keys() - {*self._query(granted), "sig"}:
            raise PassRefused("extra_query_param")
        if query.get("k") != self._key_id:
            raise PassRefused("invalid_secret")
        if not _is_same(signature, self._sign(environment_id, self._query(granted))):
            raise PassRefused("invalid_signature")
        if now >= expires_at:
            raise PassRefused("expired")
        return granted

    def _query(self, granted: Pass) -> dict[str, str]:
        query = {
            ROLE: granted.role,
            "v": _VERSION,
            "k": self._key_id,
            "exp": str(granted.expires_at),
            "reg": granted.registration_id,
            "tok": granted.token_id,
        }
        if granted.role == "harness":
            query["auth"] = granted.authorization_id
        return query

    def _sign(self, environment_id: str, query: dict[str, str]) -> str:
        signed = urlencode({"env": environment_id, **query}).encode()
        return hmac.digest(self._key, b"rendezvous\n" + signed, "sha256").hex()


def _parse(query_string: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query_string, keep_blank_values=True, strict_parsing=True, max_num_fields=16
        )
    except ValueError:
        # An empty query is not malformed; its fields are missing.
        if query_string:
            raise PassRefused("malformed_query") from None
        return {}
    query = dict(pairs)
    if len(query) != len(pairs):
        raise PassRefused("malformed_query")
    return query


def _required(query: dict[str, str], name: str, *, reason: str | None = None) -> str:
    value = query.get(name)
    if not value:
        raise PassRefused(reason or f"missing_{name}")
    return value


def _expiry(text: str) -> int:
    # A time that we have signed has fewer digits.
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise PassRefused("invalid_expiry")
    return int(text)


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
