"""Parameters, results and exceptions where they cross the wire."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams, NotFound, ProtocolError, RpcError
from exec_server.protocol.method import NOTHING, Nothing
from exec_server.rpc import boundary
from tests.rpc.both_ends import Numbered

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def test_a_missing_member_is_named_as_the_reference_names_it():
    with pytest.raises(InvalidParams, match=r"^missing field `number`"):
        boundary.decode_params(Numbered, {})


@pytest.mark.parametrize("params", [None, {}])
def test_a_method_without_parameters_takes_nothing_null_and_an_empty_object(params):
    assert boundary.decode_params(Nothing, params) is NOTHING


@pytest.mark.parametrize("params", [[], {"x": 1}, 0, ""])
def test_a_method_without_parameters_takes_nothing_else(params):
    with pytest.raises(InvalidParams, match="expected unit"):
        boundary.decode_params(Nothing, params)


@given(JSON)
def test_any_parameters_are_decoded_or_refused_as_invalid(params):
    try:
        assert isinstance(boundary.decode_params(Numbered, params), Numbered)
    except InvalidParams as exc:
        assert exc.message


@given(JSON)
def test_any_result_is_decoded_or_breaks_the_contract(result):
    try:
        assert isinstance(boundary.decode_result(Numbered, result), Numbered)
    except ProtocolError as exc:
        assert str(exc).startswith("an answer of the wrong shape")


def test_an_empty_answer_may_have_any_members():
    assert boundary.decode_result(Nothing, {"later": 1}) is NOTHING


@pytest.mark.parametrize("error", [NotFound("gone"), RpcError("odd", code=-7)])
def test_an_rpc_error_is_told_in_its_own_words(error, caplog):
    assert boundary.error_body(error, method="m") == (error.code, error.message)
    assert not caplog.records


def test_any_other_exception_is_logged_and_not_told(caplog):
    error = ValueError("a secret of the server")
    with caplog.at_level(logging.ERROR):
        assert boundary.error_body(error, method="fs/read") == (-32603, "internal error")
    [record] = caplog.records
    assert record.getMessage() == "fs/read failed"
    assert record.exc_info is not None and record.exc_info[1] is error
