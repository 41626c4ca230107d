"""Requests to targets: checked first, and changed by redirects."""

from __future__ import annotations

from typing import Any

import pytest

from exec_server.errors import InternalError, InvalidParams
from exec_server.outbound.outgoing import OutgoingRequest, prepare, redirected
from exec_server.outbound.url import parse
from exec_server.protocol.http import RequestHeader, RequestParams
from tests.requirements import requirement

ENVIRON = {"TOKEN": "secret", "EMPTY": "", "OPENAI_API_KEY": "key", "CONTROL": "a\nb"}


def asked(**params: Any) -> OutgoingRequest:
    headers = [RequestHeader(*header) for header in params.pop("headers", [])]
    defaults = {"method": "GET", "url": "http://h/", "request_id": "r"}
    return prepare(RequestParams(**{**defaults, **params}, headers=headers), ENVIRON)


def refusal(**params: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        asked(**params)
    return str(caught.value)


@requirement("http/headers:lower-and-grouped")
def test_header_names_go_in_lower_case_and_together():
    headers = asked(headers=[("X-A", "1"), ("B", ""), ("x-a", "2")]).headers
    assert list(headers) == [("x-a", "1"), ("x-a", "2"), ("b", ""), ("accept", "*/*")]


@requirement("http/headers:accept")
def test_accept_is_added_unless_given():
    assert list(asked(headers=[("Accept", "a/b")]).headers) == [("accept", "a/b")]


@requirement("http/url:credentials")
def test_credentials_of_the_address_become_a_header():
    sent = asked(url="http://user:pw@h/x")
    assert ("authorization", "Basic dXNlcjpwdw==") in sent.headers
    assert str(sent.url) == "http://h/x"


def test_a_header_of_the_caller_beats_credentials_of_the_address():
    sent = asked(url="http://user:pw@h/", headers=[("Authorization", "mine")])
    assert [value for name, value in sent.headers if name == "authorization"] == ["mine"]


@requirement("http/request:method-token")
@pytest.mark.parametrize("method", ["", "A B", "Gé", "G\n"])
def test_a_method_that_is_no_token_is_refused(method):
    assert refusal(method=method) == "http/request method is invalid: invalid HTTP method"


@requirement("http/request:messages")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"url": "x"}, "http/request url is invalid: relative URL without a base"),
        ({"url": "FTP://x"}, "http/request only supports http and https URLs, got ftp"),
        (
            {"headers": [("a b", "v")]},
            "http/request header name is invalid: invalid HTTP header name",
        ),
        (
            {"headers": [("Ok", "a\nb")]},
            "http/request header value is invalid for Ok: failed to parse header value",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_references_words(params, message):
    assert refusal(**params) == message


@requirement("http/request:order-of-checks")
def test_the_first_mistake_counts():
    mistakes: dict[str, Any] = {"method": "", "url": "x", "headers": [("", "")]}
    for part in ("method", "url", "header name"):
        assert refusal(**mistakes).startswith(f"http/request {part}")
        mistakes.pop(part.partition(" ")[0], None)


@requirement("http/env:value")
def test_a_value_comes_from_the_environment_behind_a_prefix():
    sent = asked(headers=[("X", "Bearer ", "TOKEN")])
    assert ("x", "Bearer secret") in sent.headers


@requirement("http/env:refusals")
@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("NONE", "requires"),
        ("", "requires"),
        ("token", "requires"),
        ("EMPTY", "requires a non-empty"),
        ("OPENAI_API_KEY", "cannot use"),
        ("openai_api_KEY", "cannot use"),
        ("AWS_SECRET_ACCESS_KEY", "cannot use"),
        ("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", "cannot use"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(variable, problem):
    expected = f"http/request header X {problem} executor environment variable {variable}"
    assert refusal(headers=[("X", "", variable)]) == expected


def test_a_variable_with_a_line_break_is_refused():
    assert "failed to parse header value" in refusal(headers=[("X", "", "CONTROL")])


def test_secrets_do_not_show():
    assert "secret" not in repr(asked(headers=[("X", "", "TOKEN")]))
    assert "secret" not in repr(RequestHeader("X", "secret"))


# Redirects.

SECRETS = ("authorization", "cookie", "cookie2", "proxy-authorization", "www-authenticate")
OF_BODY = ("content-type", "content-encoding", "transfer-encoding", "content-length")


def sent(method: str = "GET", url: str = "http://h/a?q") -> OutgoingRequest:
    headers = [(name, "v") for name in (*SECRETS, *OF_BODY, "x", "host", "referer")]
    return OutgoingRequest(method, parse(url), headers, b"body")


@requirement("http/redirect:methods")
@pytest.mark.parametrize(
    ("status", "method", "expected", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (301, "PUT", "PUT", True),
        (302, "HEAD", "HEAD", True),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", False),
        (307, "POST", "POST", True),
        (308, "DELETE", "DELETE", True),
    ],
)
def test_a_redirect_keeps_or_changes_the_method(status, method, expected, keeps_body):
    following = redirected(sent(method), status, "/b")
    assert following is not None
    assert following.method == expected
    assert (following.body is not None) == keeps_body
    assert all(following.has(name) == keeps_body for name in OF_BODY)


@requirement("http/redirect:not-followed")
@pytest.mark.parametrize("status", [200, 300, 304, 305, 306, 399])
def test_other_statuses_lead_nowhere(status):
    assert redirected(sent(), status, "/b") is None


@requirement("http/redirect:not-followed")
@pytest.mark.parametrize("location", [None, "http://["])
def test_without_a_usable_location_the_answer_is_the_last(location):
    assert redirected(sent(), 302, location) is None


@requirement("http/redirect:scheme")
def test_another_scheme_is_an_error():
    with pytest.raises(InternalError, match=r"redirect target uses unsupported URL scheme: ftp$"):
        redirected(sent(), 302, "ftp://x")


@requirement("http/redirect:credentials")
@pytest.mark.parametrize("location", ["http://other/", "https://h/", "http://h:81/"])
def test_credentials_stay_with_their_origin(location):
    following = redirected(sent(), 307, location)
    assert following is not None
    assert not any(following.has(name) for name in SECRETS)
    assert following.has("x") and following.has("host")


@requirement("http/redirect:credentials")
def test_the_same_origin_keeps_credentials():
    following = redirected(sent(), 307, "http://h:80/b")
    assert following is not None
    assert all(following.has(name) for name in SECRETS)


@requirement("http/redirect:referer")
@pytest.mark.parametrize(
    ("url", "location", "referer"),
    [
        ("http://h/a?q", "/b", "http://h/a?q"),
        ("http://h/a?q", "http://other/", "http://h/"),
        ("https://h:1/a", "https://other/", "https://h:1/"),
        ("https://h/a", "http://h/", None),
    ],
)
def test_the_referer_says_no_more_than_it_may(url, location, referer):
    following = redirected(sent(url=url), 302, location)
    assert following is not None
    assert dict(following.headers).get("referer") == referer
