"""The facts of the registry's HTTP API that more than one side spells.

The registry itself, executors, harnesses and the command line take paths, field names, the pairing
code's shape, URL schemes and environment variables from here. docs/registry.md describes the API.
"""

from __future__ import annotations

# The only profile of encrypted streams.
SECURITY_PROFILE = "noise_hybrid_ik_v1"

# Environment variables. A URL with a password belongs into one, because a list of processes shows
# the arguments of commands.
REGISTRY_TOKEN_VARIABLE = "EXEC_SERVER_REGISTRY_TOKEN"
# The file with the key of a harness, for executors that serve known keys only.
HARNESS_IDENTITY_VARIABLE = "EXEC_SERVER_HARNESS_IDENTITY"
REGISTRY_STATE_VARIABLE = "EXEC_SERVER_REGISTRY_STATE"
REGISTRY_BUS_VARIABLE = "EXEC_SERVER_REGISTRY_BUS"

# URLs of environments for clients: `noise+https://REGISTRY/ENVIRONMENT`.
NOISE_PREFIX = "noise+"
NOISE_SCHEMES = (f"{NOISE_PREFIX}https://", f"{NOISE_PREFIX}http://")

# Operations of executors and harnesses, and the path of their sockets.
REGISTER, FACTS, VALIDATE, CONNECT = "register", "facts", "validate", "connect"
RENDEZVOUS_PATH = "/rendezvous"

# Paths of requests by people and their tools.
ENVIRONMENTS_PATH = "/api/environments"
EVENTS_PATH = "/api/events"
PAIRINGS_PATH = "/api/pairings"
PAIR_PATH = "/api/pair"
PAIR_REPLY_PATH = "/api/pair/reply"
OWN_TOKEN_PATH = "/api/tokens/self"

# The query of a rendezvous URL: who opens the socket. Without a signature, this one alone asks for
# the older relay.
ROLE = "role"
HARNESS_QUERY = f"{ROLE}=harness"

# Headers.
REJECTION_REASON_HEADER = "x-codex-rendezvous-rejection-reason"
STREAM_ID_HEADER = "x-codex-noise-stream-id"

# The reason in the close frame for an executor whose name was registered by another one.
SUPERSEDED_REASON = "a newer registration serves this environment"

# Error codes that clients act on.
AUTHENTICATION_UNAVAILABLE = "authentication_service_unavailable"
ENVIRONMENT_OFFLINE = "environment_offline"


class Field:
    """Names of JSON fields in requests and answers."""

    SECURITY_PROFILE = "security_profile"
    EXECUTOR_PUBLIC_KEY = "executor_public_key"
    EXECUTOR_REGISTRATION_ID = "executor_registration_id"
    HARNESS_PUBLIC_KEY = "harness_public_key"
    HARNESS_KEY_AUTHORIZATION = "harness_key_authorization"


# A pairing code begins with the letters by which the registry finds the offer. The rest is a secret
# of the two machines. No letter looks like another one or like a digit.
PAIRING_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
PAIRING_CODE_LETTERS = 8
PAIRING_SECRET_LETTERS = 6


# The version of the pairing. It begins the proof of an offer, and a claim names it.
PAIRING_VERSION = 2
PAIRING_PREFIX = f"v{PAIRING_VERSION}."


def code_letters(typed: str) -> str:
    """The letters of a typed code, without case, spaces and hyphens."""
    return "".join(typed.upper().replace("-", " ").split())


def environment_path(environment_id: str, operation: str, *, kind: str = "environment") -> str:
    """The path of an operation. Names of environments are valid in URLs as they are.

    *kind* is `executor` in the oldest API, when environments had that name.
    """
    return f"/cloud/{kind}/{environment_id}/{operation}"


def rendezvous_path(environment_id: str) -> str:
    return f"{RENDEZVOUS_PATH}/{environment_id}"


def pairing_path(environment_id: str) -> str:
    """The path of an offer to pair."""
    return f"{PAIRINGS_PATH}/{environment_id}"
