"""Known secrets are removed, however the output is split."""

from __future__ import annotations

import random

import pytest

from exec_server.recording.secret_filter import SecretFilter
from tests.requirements import requirement

SECRET = "hunter2-Tr0ub4dor"
TOKEN = "exs_" + "aB3-" * 11


def filtered(parts: list[str], *secrets: str) -> str:
    one = SecretFilter(secrets)
    return "".join([one.feed(part) for part in parts]) + one.rest()


@requirement("recording:secrets")
@pytest.mark.parametrize(
    "between",
    [
        "",
        "\r\n",
        " \r",
        "\x1b[0m",
        "\x1b[2;1H",
        "\x1b[K\r\n\x1b[31m",
        "\x1b]0;t\x07",
        "\x08",
        "\x1b(B",
    ],
)
def test_a_secret_is_removed_wherever_it_is_split(between):
    for at in range(1, len(SECRET)):
        text = f"a {SECRET[:at]}{between}{SECRET[at:]} b"
        for cut in range(len(text) + 1):
            found = filtered([text[:cut], text[cut:]], SECRET)
            assert found == f"a {'*' * at}{between}{'*' * (len(SECRET) - at)} b"


@requirement("recording:secrets")
def test_a_secret_that_comes_character_by_character_is_removed():
    text = f"x{SECRET}\r\n{TOKEN} y {TOKEN}"
    stars = "*" * len(TOKEN)
    assert filtered(list(text), SECRET) == f"x{'*' * len(SECRET)}\r\n{stars} y {stars}"
    assert filtered([text]) == f"x{SECRET}\r\n{stars} y {stars}"


@requirement("recording:secrets")
def test_nothing_else_is_changed_and_nothing_is_lost():
    choose = random.Random(7)
    pieces = ["hun", "hunter", "\x1b", "[31m", "ex", "exs", "exs_", " ", "\r", "\n", "é", "-", "e"]
    for _ in range(500):
        parts = [choose.choice(pieces) for _ in range(choose.randrange(12))]
        text = "".join(parts)
        found = filtered(parts, SECRET)
        # A beginning of a secret of some length at the very end is masked.
        assert len(found) == len(text)
        assert all(new in (old, "*") for old, new in zip(text, found, strict=True))
        assert found.rstrip("*") == text[: len(found.rstrip("*"))] or "*" in found[-40:]


@requirement("recording:secrets")
def test_several_secrets_that_overlap():
    secrets = ["abcd1234", "1234efgh", "abab-abab"]
    found = filtered(list("abcd1234efgh abab-abab-abab"), *secrets)
    assert not any(secret in found for secret in secrets)
    assert found.startswith("*" * 12 + " *********")


@requirement("recording:secrets")
def test_short_values_are_no_secrets_and_lines_of_long_ones_are():
    assert filtered(["a 1 yes"], "1", "yes") == "a 1 yes"
    key = "-----BEGIN KEY-----\nMIIB1234\n-----END KEY-----"
    assert "MIIB1234" not in filtered(["key: MIIB1234\r\n"], key)


@requirement("recording:secrets")
def test_the_beginning_of_a_secret_at_the_end_is_not_left():
    assert filtered([f"x {SECRET[:9]}"], SECRET) == "x *********"
    assert filtered(["x hu"], SECRET) == "x hu"
