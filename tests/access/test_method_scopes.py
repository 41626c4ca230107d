"""Which scopes the methods need."""

from __future__ import annotations

import pytest

from exec_server.access.method_scopes import NEEDS, missing_scope, missing_scope_to_open
from exec_server.access.principal import (
    Principal,
    Scope,
    check_name,
    in_order,
    known_scopes,
    read_scopes,
)
from exec_server.protocol import fs, jobs, lifecycle, process
from exec_server.protocol.method import Method, Nothing
from exec_server.protocol.paths import PathUri
from exec_server.server.server import ROUTES
from tests.requirements import requirement


@requirement("principals:every-method")
def test_every_method_of_the_server_says_which_scopes_it_needs():
    served = {route.method.name for route in ROUTES.values()}
    assert served == {method.name for method in NEEDS}


@requirement("principals:every-method")
def test_a_method_that_is_in_no_table_needs_admin():
    unknown = Method("new/method", Nothing, Nothing, family="new")
    everything_else: frozenset[Scope] = frozenset(("exec", "files:read", "files:write", "http"))
    assert missing_scope(everything_else, unknown) == "admin"
    assert missing_scope(frozenset(("admin",)), unknown) is None


@pytest.mark.parametrize(
    ("may", "method", "missing"),
    [
        ("exec", process.START, None),
        ("http", process.START, "exec"),
        ("files:read", fs.READ_FILE, None),
        ("files:write", fs.READ_FILE, "files:read"),
        ("files:read", fs.WRITE_FILE, "files:write"),
        ("files:write", fs.COPY, "files:read"),
        ("files:read", fs.COPY, "files:write"),
        ("exec", jobs.STOP, "admin"),
        ("admin", process.START, None),
        ("http", lifecycle.INITIALIZE, None),
    ],
)
def test_the_scope_that_is_missing(may, method, missing):
    assert missing_scope(read_scopes(may), method) == missing


def test_to_open_a_file_depends_on_the_mode():
    reading = fs.OpenParams(handle_id="h", path=PathUri("file:///x"))
    writing = fs.OpenParams(handle_id="h", path=PathUri("file:///x"), mode="replace")
    assert missing_scope_to_open(read_scopes("files:read"), reading) is None
    assert missing_scope_to_open(read_scopes("files:read"), writing) == "files:write"
    assert missing_scope_to_open(read_scopes("files:write"), reading) == "files:read"
    assert missing_scope_to_open(read_scopes("files:write"), writing) is None


def test_scopes_are_read_and_shown_in_one_order():
    assert in_order(read_scopes("http, exec")) == ["exec", "http"]
    assert "admin" in read_scopes("all")
    assert known_scopes(["openid", "exec"]) == {"exec"}
    for wrong in ("", "exec,", "everything", "exec files:read"):
        with pytest.raises(ValueError, match="is no scope"):
            read_scopes(wrong)


def test_a_principal_can_only_be_narrowed():
    reader = Principal(name="r", may=read_scopes("files:read"))
    assert reader.narrowed(read_scopes("exec,files:read")).may == {"files:read"}
    admin = Principal(name="a", may=read_scopes("admin"))
    assert admin.narrowed(read_scopes("exec")).may == {"exec"}
    assert not admin.narrowed(read_scopes("exec")).is_admin


@pytest.mark.parametrize("name", ["", "token", "uid:0", "sub:x", "a b", "a/b", "-x", "é", "x" * 64])
def test_names_that_would_be_those_of_others_are_refused(name):
    with pytest.raises(ValueError, match=r"cannot name|is the name of"):
        check_name(name)
