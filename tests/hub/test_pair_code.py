"""What both machines know and the registry does not."""

from __future__ import annotations

import pytest

from exec_server.cli import pair_code
from exec_server.errors import ConfigurationError
from tests.requirements import requirement


def test_a_code_may_be_typed_as_people_type():
    assert pair_code.split(" k7qf 2mxt-9pwr-sa ") == ("K7QF2MXT", "9PWRSA")
    for wrong in ("", "K7QF-2MXT", "K7QF-2MXT-9PWRSAX"):
        with pytest.raises(ConfigurationError):
            pair_code.split(wrong)


@requirement("hub/pair:pins")
def test_a_proof_is_of_one_secret_environment_and_fingerprint():
    secret = pair_code.new_secret()
    proof = pair_code.prove(secret, "big-1", "SHA256:a")
    assert secret not in proof
    assert pair_code.is_proven(proof, secret, "big-1", "SHA256:a")
    assert not pair_code.is_proven(proof, secret, "big-1", "SHA256:b")
    assert not pair_code.is_proven(proof, secret, "big-2", "SHA256:a")
    assert not pair_code.is_proven(proof, "AAAAAA", "big-1", "SHA256:a")
    assert not pair_code.is_proven("", secret, "big-1", "SHA256:a")
