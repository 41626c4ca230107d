"""The code of a pairing, whose last part only the two machines know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.cli.pair import code_at_registry, pairing_code
from exec_server.errors import ConfigurationError
from tests.requirements import requirement


def test_a_code_may_be_typed_as_people_type():
    assert pairing_code.split(" k7qf 2mxt-9pwr-sa ") == ("K7QF2MXT", "9PWRSA")
    for wrong in ("", "K7QF-2MXT", "K7QF-2MXT-9PWRSAX"):
        with pytest.raises(ConfigurationError):
            pairing_code.split(wrong)


@requirement("hub/pair:pins")
def test_a_proof_is_of_one_secret_environment_and_fingerprint():
    secret = pairing_code.new_secret()
    proof = pairing_code.prove(secret, "executor", "big-1", "SHA256:a")
    assert secret not in proof and len(proof) <= 200
    assert pairing_code.is_proven(proof, secret, "executor", "big-1", "SHA256:a")
    assert not pairing_code.is_proven(proof, secret, "executor", "big-1", "SHA256:b")
    assert not pairing_code.is_proven(proof, secret, "executor", "big-2", "SHA256:a")
    assert not pairing_code.is_proven(proof, "AAAAAA", "executor", "big-1", "SHA256:a")
    # A registry cannot send the proof of one machine back to it as that of the other one.
    assert not pairing_code.is_proven(proof, secret, "harness", "big-1", "SHA256:a")
    for other in (
        "",
        "v2.",
        "v2..",
        proof[3:],
        proof[:-1],
        "v2.AAAA" + proof[7:],
        "v3" + proof[2:],
    ):
        assert not pairing_code.is_proven(other, secret, "executor", "big-1", "SHA256:a")


@requirement("security:pairing-salt")
def test_no_two_proofs_are_equal():
    """So no table of proofs can be computed before the offer is made."""
    proofs = {pairing_code.prove("AAAAAA", "executor", "big-1", "SHA256:a") for _ in range(3)}
    assert len(proofs) == 3


@requirement("pair:address")
@pytest.mark.parametrize(
    ("word", "registry"),
    [
        ("registry.example.net", "https://registry.example.net"),
        ("https://registry.example.net:8443/sub/", "https://registry.example.net:8443/sub"),
        ("127.0.0.1:8700", "http://127.0.0.1:8700"),
        ("[::1]:8700", "http://[::1]:8700"),
        ("localhost", "http://localhost"),
        ("https://localhost", "https://localhost"),
        # Not loopback, whatever it looks like.
        ("127.0.0.1.example.net", "https://127.0.0.1.example.net"),
    ],
)
def test_a_registry_may_be_written_without_its_scheme(word, registry):
    assert code_at_registry.read_address(f"K7QF-2MXT-9PWRSA@{word}") == (
        "K7QF-2MXT-9PWRSA",
        registry,
    )


@requirement("pair:address")
@given(
    st.sampled_from(["http", "https"]),
    st.sampled_from(["localhost", "127.0.0.1", "[::1]", "10.0.0.1", "registry.example.net"]),
    st.sampled_from(["", ":8700", "/sub"]),
)
def test_what_is_shown_leads_to_the_same_registry(scheme, host, rest):
    registry = f"{scheme}://{host}{rest}"
    assert code_at_registry.full(code_at_registry.shortest(registry)) == registry


@pytest.mark.parametrize("word", ["@", "@registry.example.net", "K7QF-2MXT-9PWRSA@", " @ "])
def test_a_code_and_a_registry_are_needed(word):
    assert code_at_registry.is_address(word)
    with pytest.raises(ConfigurationError, match="CODE@REGISTRY"):
        code_at_registry.read_address(word)
