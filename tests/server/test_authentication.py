"""Authentication of the WebSocket upgrade."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import ConfigurationError
from exec_server.server.authentication import (
    AuthOptions,
    CapabilityToken,
    SignedBearerToken,
    check_options,
    from_options,
)
from tests.requirements import requirement

SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000
HS256 = b'{"alg":"HS256","typ":"JWT"}'
INVALID = "invalid websocket jwt"
I64_MAX = 2**63 - 1

visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(claims: object, *, header: bytes = HS256, secret: bytes = SECRET) -> str:
    """A signed token. Bytes are the claims as they are; anything else becomes JSON."""
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    signed = f"{b64(header)}.{b64(payload)}"
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def claims_with(**claims: object) -> dict[str, object]:
    return {"exp": NOW + 60, **claims}


def verdict(token: str, **options) -> str | None:
    """The verdict of an authenticator at NOW on *token*."""
    authenticator = SignedBearerToken(SECRET, clock=lambda: NOW + 0.9, **options)
    return authenticator.check(f"Bearer {token}")


# The header.


@requirement("auth:missing")
def test_a_request_without_the_header_is_told_what_is_missing():
    assert CapabilityToken(digest("t")).check(None) == "missing websocket bearer token"
    assert SignedBearerToken(SECRET).check(None) == "missing websocket bearer token"


@requirement("auth:header-form")
@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer \t ",
        "Bearertok",
        "Bearer\ttok",
        "Bearer\t tok",
        " Bearer tok",
        "Basic tok",
        "Bearer tök",
        "Bearer \xa0tok",
        "Bearer \x7f",
        "Bearer to\x00k",
        "Bearer\xa0 tok",
    ],
)
def test_a_header_of_another_form_is_invalid(authorization):
    assert CapabilityToken(digest("tok")).check(authorization) == "invalid authorization header"
    assert SignedBearerToken(SECRET).check(authorization) == "invalid authorization header"


@requirement("auth:scheme-case")
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_case_of_the_scheme_does_not_matter(scheme):
    assert CapabilityToken(digest("tok")).check(f"{scheme} tok") is None


@requirement("auth:token-trimmed")
@pytest.mark.parametrize("authorization", ["Bearer   tok", "Bearer tok  ", "Bearer \ttok\t"])
def test_white_space_around_the_token_does_not_matter(authorization):
    assert CapabilityToken(digest("tok")).check(authorization) is None


@given(st.text())
def test_any_header_is_judged_without_failing(authorization):
    assert CapabilityToken(digest("tok")).check(authorization) == "invalid authorization header"


# Capability tokens.


@requirement("auth.token:match")
@given(visible, visible)
def test_exactly_the_token_is_let_in(token, other):
    authenticator = CapabilityToken(digest(token))
    assert authenticator.check(f"Bearer {token}") is None
    refused = authenticator.check(f"Bearer {other}")
    assert refused == (None if other == token else "invalid websocket bearer token")


def test_a_digest_of_another_size_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="32 bytes"):
        CapabilityToken(b"short")


# Signed tokens.


@requirement("auth.jwt:valid")
@given(
    exp=st.integers(NOW - 30, I64_MAX),
    nbf=st.none() | st.integers(-(2**63), NOW + 30),
    others=st.dictionaries(
        st.text().filter(lambda name: name not in {"exp", "nbf", "iss", "aud", "sub"}),
        st.none() | st.integers() | st.text() | st.lists(st.none()),
    ),
)
def test_a_current_signed_token_is_let_in_whatever_else_it_claims(exp, nbf, others):
    payload = json.dumps({**others, "exp": exp, "nbf": nbf}, ensure_ascii=False)
    assert verdict(jwt(payload.encode())) is None


@requirement("auth.jwt:alg-hs256-only")
@pytest.mark.parametrize(
    "header",
    [
        b'{"alg":"none"}',
        b'{"alg":"HS384"}',
        b'{"alg":"HS512"}',
        b'{"alg":"hs256"}',
        b'{"alg":null}',
        b'{"typ":"JWT"}',
        b"{}",
        b'["HS256"]',
        b'"HS256"',
        b"",
        b'{"alg":"HS256"}x',
    ],
)
def test_a_token_with_another_algorithm_is_refused(header):
    assert verdict(jwt(claims_with(), header=header)) == INVALID


@requirement("auth.jwt:header-members-ignored")
@pytest.mark.parametrize(
    "members",
    [b'"typ":"x"', b'"typ":null', b'"kid":"k"', b'"foo":{"a":1}', b'"b64":false'],
)
def test_other_members_of_the_header_are_ignored(members):
    assert verdict(jwt(claims_with(), header=b' {"alg":"HS256",%s} ' % members)) is None


@requirement("auth.jwt:crit")
@pytest.mark.parametrize(
    "crit", [b'["x"]', b'["exp"]', b"[]", b"null", b'"x"', b'["b64"],"b64":false']
)
def test_a_token_with_critical_extensions_is_refused(crit):
    assert verdict(jwt(claims_with(), header=b'{"alg":"HS256","crit":%s}' % crit)) == INVALID


@requirement("auth.jwt:header-members-typed")
@pytest.mark.parametrize(
    "members",
    [b'"typ":5', b'"kid":5', b'"x5c":5', b'"x5t#S256":5', b'"alg":"HS256"', b'"typ":"","typ":""'],
)
def test_a_registered_member_of_the_header_has_its_type_and_comes_once(members):
    assert verdict(jwt(claims_with(), header=b'{"alg":"HS256",%s}' % members)) == INVALID


@requirement("auth.jwt:signature")
def test_a_token_signed_with_another_secret_is_refused():
    assert verdict(jwt(claims_with(), secret=SECRET[::-1])) == INVALID


@requirement("auth.jwt:signature")
@given(st.data())
def test_a_token_with_any_character_changed_is_refused(data):
    token = jwt(claims_with(iss="me"))
    index = data.draw(st.integers(0, len(token) - 1))
    char = data.draw(st.sampled_from(sorted(set("ABab01-_.=+/ ~") - {token[index]})))
    assert verdict(token[:index] + char + token[index + 1 :]) == INVALID


@requirement("auth.jwt:three-segments")
def test_a_token_has_three_segments():
    head, payload, signature = jwt(claims_with()).split(".")
    for token in (
        head,
        f"{head}.{payload}",
        f"{head}.{payload}.",
        f"{head}.{payload}.{signature}.",
        f"{head}.{payload}.{signature}.{signature}",
        f".{head}.{payload}.{signature}",
        "..",
        ".",
    ):
        assert verdict(token) == INVALID


@requirement("auth.jwt:base64url")
@pytest.mark.parametrize("number", range(3))
def test_padding_and_the_other_alphabet_are_refused(number):
    segments = jwt(claims_with(iss="~~~???")).split(".")
    padded = [*segments[:number], segments[number] + "=", *segments[number + 1 :]]
    assert verdict(".".join(padded)) == INVALID


@requirement("auth.jwt:base64url")
def test_the_signature_is_not_read_from_the_standard_alphabet():
    token = next(
        token
        for token in (jwt(claims_with(jti=number)) for number in range(1000))
        if set("-_") <= set(token.rpartition(".")[2])
    )
    signed, _, signature = token.rpartition(".")
    assert verdict(token) is None
    assert verdict(f"{signed}.{signature.replace('-', '+').replace('_', '/')}") == INVALID


@requirement("auth.jwt:base64url")
def test_a_second_spelling_of_the_same_bytes_is_refused():
    token = jwt(claims_with())
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # 32 bytes leave two unused bits in the last character.
    spare = alphabet[alphabet.index(token[-1]) | 1]
    assert verdict(token[:-1] + spare) == INVALID


@requirement("auth.jwt:exp-required")
@pytest.mark.parametrize(
    "exp", [b"null", b'"1800000060"', b"1800000060.0", b"1.9e9", b"true", b"[]", b"01800000060"]
)
def test_exp_is_an_integer(exp):
    assert verdict(jwt(b'{"exp":%s}' % exp)) == INVALID


@requirement("auth.jwt:exp-required")
def test_a_token_without_exp_is_refused():
    assert verdict(jwt({"nbf": NOW})) == INVALID


@requirement("auth.jwt:times-i64")
@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**400])
def test_times_fit_in_64_bits(claim, number):
    assert verdict(jwt(claims_with(**{claim: number}))) == INVALID


@requirement("auth.jwt:expired")
@pytest.mark.parametrize("skew", [0, 30])
def test_a_token_expires_after_its_last_second_and_the_skew(skew):
    assert verdict(jwt({"exp": NOW - skew}), max_clock_skew=skew) is None
    assert verdict(jwt({"exp": NOW - skew - 1}), max_clock_skew=skew) == "expired websocket jwt"


@requirement("auth.jwt:expired")
def test_a_time_before_the_epoch_has_passed():
    assert verdict(jwt({"exp": -(2**63)}), max_clock_skew=I64_MAX) == "expired websocket jwt"


@requirement("auth.jwt:not-before")
@pytest.mark.parametrize("skew", [0, 30])
def test_a_token_is_valid_from_its_first_second_less_the_skew(skew):
    early = "websocket jwt is not valid yet"
    assert verdict(jwt(claims_with(nbf=NOW + skew)), max_clock_skew=skew) is None
    assert verdict(jwt(claims_with(nbf=NOW + skew + 1)), max_clock_skew=skew) == early


@requirement("auth.jwt:nbf-type")
@pytest.mark.parametrize("nbf", ["1", 1.0, True, [], {}])
def test_nbf_is_an_integer_or_null(nbf):
    assert verdict(jwt(claims_with(nbf=None))) is None
    assert verdict(jwt(claims_with(nbf=nbf))) == INVALID


@requirement("auth.jwt:issuer")
@pytest.mark.parametrize("claims", [{}, {"iss": None}, {"iss": "ME"}, {"iss": " me "}])
def test_a_token_of_another_issuer_is_refused(claims):
    assert verdict(jwt(claims_with(iss="me")), issuer="me") is None
    assert verdict(jwt(claims_with(**claims)), issuer="me") == "websocket jwt issuer mismatch"


@requirement("auth.jwt:audience")
@pytest.mark.parametrize("aud", ["you", ["you"], ["a", "you"]])
def test_the_audience_is_equal_or_contained(aud):
    assert verdict(jwt(claims_with(aud=aud)), audience="you") is None


@requirement("auth.jwt:audience")
@pytest.mark.parametrize("claims", [{}, {"aud": None}, {"aud": []}, {"aud": ["a"]}, {"aud": "yo"}])
def test_a_token_for_another_audience_is_refused(claims):
    refused = verdict(jwt(claims_with(**claims)), audience="you")
    assert refused == "websocket jwt audience mismatch"


@requirement("auth.jwt:parties-type")
@pytest.mark.parametrize(
    "claims",
    [{"iss": 5}, {"iss": ["me"]}, {"aud": 5}, {"aud": {}}, {"aud": [5]}, {"aud": ["a", None]}],
)
def test_issuer_and_audience_must_have_their_types_even_if_they_are_not_checked(claims):
    assert verdict(jwt(claims_with(**claims))) == INVALID


@requirement("auth.jwt:duplicates")
@pytest.mark.parametrize("member", ['"exp":1800000060', '"nbf":null', '"iss":"a"', '"aud":"a"'])
def test_a_claim_that_comes_twice_is_refused(member):
    payload = f'{{"exp":1800000060,{member},{member}}}'
    assert verdict(jwt(payload.encode())) == INVALID
    escaped = payload.replace('"exp"', '"\\u0065xp"', 1)
    assert verdict(jwt(escaped.encode())) == INVALID


@requirement("auth.jwt:other-claims-ignored")
@pytest.mark.parametrize(
    "members",
    [b'"iat":"x"', b'"jti":[1]', b'"foo":1,"foo":2', b'"x":{"exp":1,"exp":2}', b'"sub":5'],
)
def test_claims_that_are_never_read_are_ignored(members):
    assert verdict(jwt(b'{"exp":1800000060,%s}' % members)) is None


@requirement("auth.jwt:claims-object")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[1800000060,null,null,null]",
        b'{"exp":1800000060}x',
        b'{"exp":1800000060,}',
        b'{"exp":1800000060,"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    ],
)
def test_claims_are_one_json_object(payload):
    assert verdict(jwt(payload)) == INVALID


@requirement("auth.jwt:order")
def test_the_first_check_that_fails_is_the_one_told():
    options = {"issuer": "me", "audience": "you"}
    early, late = NOW - 100, NOW + 100
    for claims, refused in (
        ({"exp": early, "nbf": late, "iss": "no", "aud": 5}, INVALID),
        ({"exp": early, "nbf": late, "iss": "no"}, "expired websocket jwt"),
        ({"exp": late, "nbf": late, "iss": "no"}, "websocket jwt is not valid yet"),
        ({"exp": late, "iss": "no"}, "websocket jwt issuer mismatch"),
        ({"exp": late, "iss": "me"}, "websocket jwt audience mismatch"),
        ({"exp": late, "iss": "me", "aud": "you"}, None),
    ):
        assert verdict(jwt(claims), **options) == refused
        assert verdict(jwt(claims, secret=SECRET[::-1]), **options) == INVALID


@given(st.binary())
def test_signed_bytes_of_any_kind_are_judged_without_failing(payload):
    assert verdict(jwt(payload)) == INVALID


@given(visible)
def test_any_token_is_judged_without_failing(token):
    assert verdict(token) == INVALID


# Options.


def refusal(**options) -> str:
    with pytest.raises(ConfigurationError) as caught:
        from_options(AuthOptions(**options))
    return str(caught.value)


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("tok\n")
    return str(path)


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return str(path)


@requirement("auth.options:off")
def test_without_options_there_is_no_authenticator():
    assert from_options(AuthOptions()) is None


@requirement("auth.options:token-file")
def test_the_token_is_read_from_a_file_and_trimmed(token_file):
    authenticator = from_options(AuthOptions(mode="capability-token", token_file=token_file))
    assert authenticator is not None
    assert authenticator.check("Bearer tok") is None
    assert authenticator.check("Bearer no") == "invalid websocket bearer token"


@requirement("auth.options:secrets-read-once")
def test_a_later_edit_of_the_file_has_no_effect(token_file):
    authenticator = from_options(AuthOptions(mode="capability-token", token_file=token_file))
    assert authenticator is not None
    os.truncate(token_file, 0)
    assert authenticator.check("Bearer tok") is None


@requirement("auth.options:trim-unicode")
@pytest.mark.parametrize(
    ("content", "token_is_accepted"),
    [
        ("\u00a0tok\u3000\r\n", True),
        ("\u2028\u0085tok", True),
        # This is no white space, although Python strips it.
        ("\x1ctok", False),
        ("\ufefftok", False),
    ],
)
def test_white_space_is_what_unicode_says_it_is(tmp_path, content, token_is_accepted):
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8", newline="")
    authenticator = from_options(AuthOptions(mode="capability-token", token_file=str(path)))
    assert authenticator is not None
    assert (authenticator.check("Bearer tok") is None) is token_is_accepted


@requirement("auth.options:token-sha256")
@pytest.mark.parametrize("spell", [str.lower, str.upper, " {}\n".format])
def test_the_digest_may_be_given_instead_of_the_token(spell):
    text = spell(digest("tok").hex())
    authenticator = from_options(AuthOptions(mode="capability-token", token_sha256=text))
    assert authenticator is not None
    assert authenticator.check("Bearer tok") is None


@requirement("auth.options:token-sha256-form")
@pytest.mark.parametrize(
    "text", ["", "a" * 63, "a" * 65, "g" * 64, "é" * 32, "\x1c" + "a" * 64, "aa " * 21 + "a"]
)
def test_a_digest_has_64_hex_digits(text):
    assert (
        refusal(mode="capability-token", token_sha256=text)
        == "--ws-token-sha256 must be a 64-character hex SHA-256 digest"
    )


@requirement("auth.options:capability-needs-one")
def test_capability_mode_needs_exactly_one_source_of_the_token():
    assert refusal(mode="capability-token") == (
        "`--ws-token-file` or `--ws-token-sha256` is required "
        "when `--ws-auth capability-token` is set"
    )
    assert refusal(mode="capability-token", token_file="nope", token_sha256="zz") == (
        "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive"
    )


@requirement("auth.options:modes-do-not-mix")
@pytest.mark.parametrize(
    "detail",
    [
        {"shared_secret_file": "x"},
        {"issuer": ""},
        {"audience": " "},
        {"max_clock_skew_seconds": 0},
    ],
)
def test_capability_mode_refuses_details_of_signed_tokens_first(detail):
    assert refusal(mode="capability-token", token_file="a", token_sha256="b", **detail) == (
        "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and "
        "`--ws-max-clock-skew-seconds` require `--ws-auth signed-bearer-token`"
    )


@requirement("auth.options:modes-do-not-mix")
@pytest.mark.parametrize("detail", [{"token_file": "x"}, {"token_sha256": ""}])
def test_signed_mode_refuses_details_of_capability_tokens_first(detail):
    assert refusal(mode="signed-bearer-token", **detail) == (
        "`--ws-token-file` and `--ws-token-sha256` require "
        "`--ws-auth capability-token`, not `signed-bearer-token`"
    )


@requirement("auth.options:signed-needs-secret")
def test_signed_mode_needs_a_secret():
    assert refusal(mode="signed-bearer-token") == (
        "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set"
    )


@requirement("auth.options:details-need-mode")
@pytest.mark.parametrize(
    "detail",
    [
        {"token_file": "x"},
        {"token_sha256": "x"},
        {"shared_secret_file": "x"},
        {"issuer": ""},
        {"audience": "x"},
        {"max_clock_skew_seconds": 30},
        {"token_file": "x", "token_sha256": "x"},
    ],
)
def test_details_without_a_mode_are_refused(detail):
    assert refusal(**detail) == (
        "websocket auth flags require `--ws-auth capability-token` "
        "or `--ws-auth signed-bearer-token`"
    )


@requirement("auth.options:signed")
def test_signed_mode_uses_every_detail(secret_file):
    authenticator = from_options(
        AuthOptions(
            mode="signed-bearer-token",
            shared_secret_file=secret_file,
            issuer=" me ",
            audience="you\n",
            max_clock_skew_seconds=I64_MAX,
        )
    )
    assert authenticator is not None
    good = {"exp": 1, "iss": "me", "aud": "you"}
    assert authenticator.check(f"Bearer {jwt(good)}") is None
    for claim, refused in (("iss", "issuer"), ("aud", "audience")):
        token = jwt({**good, claim: "x"})
        assert authenticator.check(f"Bearer {token}") == f"websocket jwt {refused} mismatch"


@requirement("auth.options:default-skew")
def test_the_skew_is_30_seconds_unless_given():
    assert verdict(jwt({"exp": NOW - 30})) is None
    assert verdict(jwt({"exp": NOW - 31})) == "expired websocket jwt"


@requirement("auth.options:blank-parties")
def test_a_blank_issuer_or_audience_is_unset(secret_file):
    authenticator = from_options(
        AuthOptions(
            mode="signed-bearer-token", shared_secret_file=secret_file, issuer=" ", audience=""
        )
    )
    assert authenticator is not None
    assert authenticator.check(f"Bearer {jwt({'exp': I64_MAX})}") is None


@requirement("auth.options:short-secret")
@pytest.mark.parametrize("content", [b"x" * 31, b" " + b"x" * 31 + b"\n" * 9])
def test_a_secret_has_32_bytes_after_trimming(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    assert (
        refusal(mode="signed-bearer-token", shared_secret_file=str(path))
        == f"signed websocket bearer secret {path} must be at least 32 bytes"
    )


@requirement("auth.options:skew-i64")
def test_the_skew_fits_in_64_bits_and_is_judged_after_the_secret(secret_file, tmp_path):
    options = {"mode": "signed-bearer-token", "max_clock_skew_seconds": 2**63}
    assert (
        refusal(**options, shared_secret_file=secret_file)
        == "websocket auth clock skew must fit in a signed 64-bit integer"
    )
    missing = tmp_path / "missing"
    assert refusal(**options, shared_secret_file=str(missing)).startswith("failed to read")


@requirement("auth.options:unreadable-file")
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "file").touch()
    for name, why in (
        ("missing", "No such file or directory (os error 2)"),
        ("", "Is a directory (os error 21)"),
        ("file/x", "Not a directory (os error 20)"),
        ("binary", "stream did not contain valid UTF-8"),
    ):
        path = os.path.join(tmp_path, name).rstrip("/")
        expected = f"failed to read websocket auth secret {path}: {why}"
        assert refusal(mode="capability-token", token_file=path) == expected
        assert refusal(mode="signed-bearer-token", shared_secret_file=path) == expected


@requirement("auth.options:empty-file")
@pytest.mark.parametrize("content", ["", " \r\n\t\u2003"])
def test_a_blank_file_is_refused(tmp_path, content):
    path = tmp_path / "blank"
    path.write_text(content, encoding="utf-8")
    expected = f"websocket auth secret {path} must not be empty"
    assert refusal(mode="capability-token", token_file=str(path)) == expected
    assert refusal(mode="signed-bearer-token", shared_secret_file=str(path)) == expected


@requirement("auth.options:paths")
@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("nope", "work/nope"),
        ("./a/../nope/", "work/nope"),
        ("../nope", "nope"),
        ("~/nope", "home/nope"),
        ("~//x/../nope", "home/nope"),
        ("~root/nope", "work/~root/nope"),
        ("$HOME/nope", "work/$HOME/nope"),
        (" nope ", "work/ nope "),
    ],
)
def test_paths_are_relative_to_here_or_to_home(tmp_path, monkeypatch, path, read):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert refusal(mode="capability-token", token_file=path) == (
        f"failed to read websocket auth secret {tmp_path}/{read}: "
        "No such file or directory (os error 2)"
    )


@requirement("auth.options:paths")
def test_without_home_the_account_says_where_home_is(monkeypatch):
    import pwd

    monkeypatch.setenv("HOME", "")
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert f" {home}/no/such/token:" in refusal(
        mode="capability-token", token_file="~/no/such/token"
    )


@requirement("auth.options:combinations-before-files")
def test_combinations_can_be_checked_without_touching_files():
    check_options(AuthOptions())
    check_options(AuthOptions(mode="capability-token", token_file="/no/such/file"))
    check_options(AuthOptions(mode="signed-bearer-token", shared_secret_file="/no/such/file"))
    with pytest.raises(ConfigurationError, match="64-character"):
        check_options(AuthOptions(mode="capability-token", token_sha256="x"))


@requirement("auth:secrets-hidden")
def test_no_repr_shows_a_secret(token_file):
    shown = [
        CapabilityToken(digest("tok")),
        SignedBearerToken(SECRET, issuer="me"),
        from_options(AuthOptions(mode="capability-token", token_file=token_file)),
    ]
    for authenticator in shown:
        text = f"{authenticator!r} {authenticator}"
        for secret in ("tok", digest("tok").hex(), repr(digest("tok")), SECRET.decode()):
            assert secret not in text


def test_the_module_does_not_load_the_hashes_before_they_are_needed():
    program = (
        "import sys, exec_server.server.authentication as auth;"
        "auth.from_options(auth.AuthOptions());"
        "sys.exit(bool({'hmac', 'hashlib', 'json', 'base64', 'pwd'} & set(sys.modules)))"
    )
    # The module `site` is left out, because its start-up files may load anything.
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-S", "-c", program], check=True, env=environment)
