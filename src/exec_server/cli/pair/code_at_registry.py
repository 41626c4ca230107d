"""`CODE@REGISTRY`: the word that a person types on the other machine."""

from __future__ import annotations

from exec_server.errors import ConfigurationError
from exec_server.remote.credentials.credentials import is_loopback


def is_address(word: str) -> bool:
    """True if *word* is meant as CODE@REGISTRY; names of environments have no `@`."""
    return "@" in word


def read_address(word: str) -> tuple[str, str]:
    """The code and the registry's URL. Raises ConfigurationError."""
    code, _, registry = word.partition("@")
    if not code.strip() or not registry.strip():
        raise ConfigurationError("expected CODE@REGISTRY, as in K7QF-2MXT-9PWRSA@example.net")
    return code, full(registry)


def full(registry: str) -> str:
    """The URL of a registry; without a scheme it is https, or http on loopback."""
    text = registry.strip().rstrip("/")
    if "://" in text:
        return text
    plain = f"http://{text}"
    return plain if is_loopback(plain) else f"https://{text}"


def shortest(registry: str) -> str:
    """*registry* without its scheme, if `full` can restore it."""
    without = registry.partition("://")[2]
    return without if full(without) == registry else registry
