"""Grants that a start brings along."""

from __future__ import annotations

import pytest

from exec_server.errors import InvalidParams
from exec_server.process.given_grants import given_grants
from tests.requirements import requirement


@requirement("denials/grants:given")
def test_the_grants_of_records_are_read():
    texts = ["write=/srv/a=b", "read=/srv/c", "socket=unix:/run/x"]
    assert given_grants(texts) == {
        b"/srv/a=b": "write",
        b"/srv/c": "read",
        b"unix:/run/x": "socket",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "write",
        "write=",
        "write=/",
        "write=srv",
        "write=/srv/../etc",
        "write=/srv/",
        "write=//srv",
        "write=/srv/.git/hooks",
        "write=/proc/self/mem",
        "write=/sys",
        "write=/dev/sda",
        "write=/a\0b",
        "socket=/run/x",
        "socket=unix:@x",
        "host=example.org:443",
        "syscall=mount",
    ],
)
@requirement("denials/grants:given")
def test_nothing_else_is_accepted(text):
    with pytest.raises(InvalidParams, match="is no grant of a record"):
        given_grants([text])


@requirement("denials/grants:given")
def test_there_is_a_limit():
    with pytest.raises(InvalidParams, match="more than 64 grants"):
        given_grants([f"write=/srv/{number}" for number in range(65)])
