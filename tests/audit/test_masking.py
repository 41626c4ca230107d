"""Secrets are removed from command lines, texts and URLs; everything else stays."""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.access.token_secrets import new_secret
from exec_server.audit import masking
from exec_server.audit.masking import MASK, PLAIN, Masker, is_secret_name
from tests.requirements import requirement

# Values that cannot be a part of the text around them.
SECRETS = st.text("QZXJKW0123456789", min_size=6, max_size=40).map(lambda text: f"Zq9{text}")
NAMES = st.sampled_from(
    "token password db-password API_KEY apiKey aws_secret_access_key client-secret GH_TOKEN "
    "privateKey passphrase".split()
)
# Each has a place for a name, and one for a secret.
PLACES = st.sampled_from(
    [
        ["prog", "--{name}", "{secret}"],
        ["prog", "--{name}={secret}"],
        ["prog", "-{name}={secret}", "after"],
        ["env", "{name}={secret}", "prog"],
        ["sh", "-c", "prog --{name} {secret} && echo done"],
        ["sh", "-c", "{name}='{secret} and more' prog"],
        ["curl", "-d", '{{"a": 1, "{name}": "{secret}"}}'],
        ["curl", "-H", "X-{name}: {secret}"],
        ["curl", "-H", "Authorization: Bearer {secret}"],
        ["curl", "--header=Authorization: Basic {secret}"],
        ["curl", "-u", "me:{secret}", "https://example.test"],
        ["git", "clone", "https://me:{secret}@example.test/x.git"],
        ["git", "clone", "https://{secret}@example.test/x.git"],
        ["wget", "https://example.test/?a=1&{name}={secret}&b=2"],
        ["prog", "exs_{secret}"],
        ["prog", "x eyJhbGciOiJIUzI1NiJ9.{secret}{secret}.abc"],
        ["prog", "-----BEGIN RSA PRIVATE KEY-----\n{secret}\n-----END RSA PRIVATE KEY-----"],
        ["prog", "-----BEGIN PRIVATE KEY-----\n{secret}"],
    ]
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@requirement("audit/masking:secrets")
@given(PLACES, NAMES, SECRETS)
def test_a_secret_in_a_usual_place_is_never_written(place, name, secret):
    argv = [word.format(name=name, secret=secret) for word in place]
    masked = PLAIN.command(argv)
    assert len(masked) == len(argv)
    assert secret not in "\n".join(masked)
    assert masked[0] == argv[0]


@requirement("audit/masking:secrets")
@given(st.lists(WORDS, max_size=5), SECRETS, st.lists(WORDS, max_size=5))
def test_the_servers_own_token_is_never_written(before, token, after):
    masker = Masker([sha256(token.encode()).digest()])
    masked = masker.command([*before, f"x={token}", token, f"'{token}'", *after])
    assert token not in "\n".join(masked)


@given(st.lists(WORDS, max_size=8))
def test_masking_twice_changes_nothing_more(argv):
    once = PLAIN.command(argv)
    assert PLAIN.command(once) == once


@requirement("audit/masking:rest")
@pytest.mark.parametrize(
    "argv",
    [
        ["git", "log", "--author=me", "-p", "file:///x"],
        ["prog", "--token-file", "/run/token", "--max-tokens", "100", "--password-stdin"],
        ["sh", "-c", "make -j4 && echo done > /tmp/x; keyboard=us monkey: 3"],
        ["curl", "https://example.test/a/b?x=1", "-u", "me"],
        ["ssh", "me@example.test", "--", "passwd"],
    ],
)
def test_what_is_no_secret_stays(argv):
    assert PLAIN.command(argv) == argv


def test_an_option_without_a_value_hides_no_other_option():
    argv = ["prog", "--password", "--verbose", "--token", "-v", "--secret", "-long-secret"]
    assert PLAIN.command(argv) == [*argv[:-1], MASK]


@requirement("audit/masking:urls")
@given(SECRETS)
def test_a_url_loses_user_and_values_but_no_names(secret):
    url = f"https://me:{secret}@example.test:8443/a/b?key={secret}&{secret}#{secret}"
    assert PLAIN.url(url) == f"https://example.test:8443/a/b?key={MASK}&{MASK}"


@requirement("audit/masking:urls")
@given(SECRETS)
def test_urls_in_a_message_lose_the_same(secret):
    text = f"POST failed (https://me:{secret}@example.test/a?q={secret}), `http://x/?{secret}`"
    assert (
        PLAIN.message(text) == f"POST failed (https://example.test/a?q={MASK}), `http://x/?{MASK}`"
    )


def test_a_url_that_is_none_is_not_written():
    assert PLAIN.url("http://[x") == MASK


@pytest.mark.parametrize(
    "bad",
    ["a" * 9000, "eyJ-" * 3000, '"token' * 1500, "token='" * 1200, "a://" * 3000, "auth " * 2000],
)
def test_a_long_command_line_is_cut_and_takes_no_time(bad):
    # A pattern that goes back and forth over such a text would take minutes.
    masked = PLAIN.command([bad, "x" * 100_000, "y"])
    assert sum(map(len, masked)) < 9000 and masked[-1] == "... (3 words)"
    assert len(PLAIN.command(["x"] * 5000)) == 1025


def test_a_secret_at_the_cut_is_not_written_in_part():
    argv = ["x" * 8100, "prog " + "y" * 60 + " ghp_" + "Q" * 36]
    assert "ghp_" not in "".join(PLAIN.command(argv))


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("TOKEN", True),
        ("GITHUB_TOKEN", True),
        ("--api-key", True),
        ("sessionToken", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("PATH", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("TOKEN_FILE", False),
        ("KEYBOARD", False),
        ("", False),
    ],
)
def test_names_of_secrets(name, is_secret):
    assert is_secret_name(name) == is_secret


def test_the_module_is_pure():
    tree = ast.parse(Path(masking.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {
        n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names
    }
    pure = {"__future__", "collections.abc", "hashlib", "itertools", "re", "urllib.parse"}
    assert imported <= pure


@requirement("audit/masking:secrets")
def test_a_token_of_a_principal_is_masked_wherever_it_begins():
    token = new_secret()
    words = [f"-H{token}", f"my_{token}", f"x-{token}!"]
    assert PLAIN.command(words) == [f"-H{MASK}", f"my_{MASK}", f"x-{MASK}!"]
