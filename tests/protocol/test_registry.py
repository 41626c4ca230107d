"""The registry's HTTP API is spelled in one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from exec_server.protocol import registry
from exec_server.protocol.registry import code_letters, environment_path, pairing_path
from tests.requirements import requirement
from tests.support.source_tree import modules

OWNER = "protocol.registry"
# Texts that no string of another module is, and texts with which none begins.
WHOLE = {
    registry.SECURITY_PROFILE,
    registry.PAIRING_ALPHABET,
    registry.NOISE_PREFIX,
    *registry.NOISE_SCHEMES,
    registry.REGISTRY_TOKEN_VARIABLE,
    registry.REGISTRY_STATE_VARIABLE,
    registry.REGISTRY_BUS_VARIABLE,
    registry.HARNESS_QUERY,
    registry.REJECTION_REASON_HEADER,
    registry.STREAM_ID_HEADER,
    registry.AUTHENTICATION_UNAVAILABLE,
    registry.ENVIRONMENT_OFFLINE,
    *(value for name, value in vars(registry.Field).items() if name.isupper()),
}
BEGINNINGS = ("/cloud/", "/api/", registry.RENDEZVOUS_PATH)
# The conformance kit does not depend on what it checks, so it spells the API itself.
KIT = "conformance."


def strings(source: str) -> Iterator[ast.Constant]:
    """The strings of a module; docstrings are text for people and left out."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node


def copies(source: str) -> list[str]:
    return [
        f"line {node.lineno}: {node.value!r}"
        for node in strings(source)
        if node.value in WHOLE or str(node.value).startswith(BEGINNINGS)
    ]


@requirement("house/registry-api:one-place")
@pytest.mark.parametrize(
    "name", [name for name in modules() if name != OWNER and not name.startswith(KIT)]
)
def test_no_other_module_spells_the_api(name):
    found = copies(modules()[name].read_text(encoding="utf-8"))
    assert not found, f"take these from {OWNER}: {', '.join(found)}"


@pytest.mark.parametrize(
    "source",
    [
        'PROFILE = "noise_hybrid_ik_v1"',
        'path = f"/api/pairings/{name}"',
        'schemes = ("wss://", "noise+https://")',
        'route("POST", "/cloud/environment/{id}/connect", connect)',
        'token = environ["EXEC_SERVER_REGISTRY_TOKEN"]',
    ],
)
def test_a_copy_is_found(source):
    assert len(copies(source)) == 1


def test_paths():
    assert environment_path("build-1", "connect") == "/cloud/environment/build-1/connect"
    assert environment_path("b", "register", kind="executor") == "/cloud/executor/b/register"
    assert pairing_path("build-1") == "/api/pairings/build-1"


def test_a_code_is_read_as_people_type_it():
    assert code_letters(" k7qf-2mxt 9pwrsa ") == "K7QF2MXT9PWRSA"
