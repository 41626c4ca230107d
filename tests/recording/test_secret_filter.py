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


@requirement("recording:secrets")
def test_secrets_in_long_output_in_chunks_of_any_size():
    choose = random.Random(11)
    fillers = [
        "some words here\r\n" * 40,
        "\x1b[01;34mfolder\x1b[0m  " * 90,
        "\x1b]0;a\nb\x07",
        "e",
    ]
    betweens = ["", "\r\n", " \r", "\x1b[31m", " \x1b[K\r", "\x1b(B"]
    for _ in range(30):
        shown, wanted = "", ""
        for _ in range(12):
            filler, between = choose.choice(fillers), choose.choice(betweens)
            at = choose.randrange(1, len(SECRET))
            blank = between.startswith(" \x1b")
            shown += filler + SECRET[:at] + between + SECRET[at:]
            # A blank that stays visible means that this is no secret.
            hidden = SECRET if blank else "*" * len(SECRET)
            wanted += filler + hidden[:at] + between + hidden[at:]
        cuts = sorted(choose.randrange(len(shown)) for _ in range(choose.randrange(20)))
        chunks = [shown[a:b] for a, b in zip([0, *cuts], [*cuts, len(shown)], strict=True)]
        assert filtered(chunks, SECRET, "another secret") == wanted


@requirement("recording:secrets")
def test_what_is_held_back_has_a_limit():
    one = SecretFilter([SECRET])
    # Nothing visible follows the beginning of a secret, for as long as the program likes.
    written = one.feed(SECRET[:9])
    for _ in range(100):
        written += one.feed("\x1b[31m" * 400)
    assert len(written) >= 100_000 and len(one.held[0]) <= 64 * 1024
    assert written.startswith("*" * 9 + "\x1b[31m")


@requirement("recording:secrets")
def test_another_filter_takes_over_at_any_moment():
    text = f"a {SECRET[:5]}\x1b[31m{SECRET[5:]} b {TOKEN} c {SECRET}{SECRET}"
    for at in range(len(text)):
        first, second = SecretFilter([SECRET]), SecretFilter([SECRET])
        before = first.feed(text[:at])
        second.take_over(*first.held)
        assert before + second.feed(text[at:]) + second.rest() == filtered([text], SECRET)
