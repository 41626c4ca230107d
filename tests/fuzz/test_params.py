"""Arbitrary parameters to every decoder, and to every method that does no harm."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams
from exec_server.protocol.base64 import Blob
from exec_server.protocol.method import Method, Nothing
from exec_server.rpc import boundary
from exec_server.server.server import ROUTES
from tests.fuzz.test_messages import VALID, values
from tests.requirements import requirement

METHODS = [route.method for route in ROUTES.values()]
HARMLESS = {name for name, _ in VALID}

# Texts that decoders look into.
telling_texts = st.sampled_from(
    [
        "",
        "/",
        "file:///tmp",
        "file:///%00",
        "file:///a%ffb",
        "file://host/x",
        "\0",
        "eHg=",
        "YR==",
        "interrupt",
        "SIGKILL",
        "all",
        "core",
        "00000000-0000-4000-8000-000000000000",
        "\U0010ffff",
    ]
)


def near(shape: Any) -> st.SearchStrategy[Any]:
    """Values that are of *shape*, or nearly so."""
    return st.one_of(good(shape), values, telling_texts)


def good(shape: Any) -> st.SearchStrategy[Any]:
    """Values that have the members of *shape*, each of them nearly right."""
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        return good_struct(shape)
    if shape is bool:
        return st.booleans()
    if shape is int:
        return st.integers(-1, 70_000)
    if shape is str or shape is Blob:
        return telling_texts
    inner = [part for part in get_args(shape) if part is not type(None)]
    name = getattr(shape, "__name__", "")
    if getattr(shape, "__origin__", None) is list:
        return st.lists(near(inner[0]), max_size=3)
    if getattr(shape, "__origin__", None) is dict:
        return st.dictionaries(st.text(max_size=3), near(inner[1]), max_size=3)
    if name == "Literal" or all(isinstance(part, str) for part in inner):
        return st.sampled_from(inner) if inner else values
    return st.one_of(*map(good, inner))


def good_struct(shape: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(shape)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(shape):
        members = required if field.required else optional
        members[field.encode_name] = near(hints[field.name])
    return st.fixed_dictionaries(required, optional=optional)


@requirement("fuzz:decoders")
@pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])
@given(data=st.data())
def test_a_decoder_makes_its_shape_or_says_what_is_wrong(method: Method[Any, Any], data):
    params = data.draw(values if method.params is Nothing else near(method.params))
    # As it comes from the wire.
    params = msgspec.json.decode(msgspec.json.encode(params))
    try:
        decoded = boundary.decode_params(method.params, params)
    except InvalidParams as exc:
        assert exc.message
        assert len(exc.message) < 10_000
    else:
        assert isinstance(decoded, method.params)


@requirement("fuzz:params")
@pytest.mark.parametrize("name", sorted(HARMLESS))
@given(data=st.data())
def test_a_live_method_answers_with_a_result_or_a_documented_error(live, name, data):
    shape = ROUTES[name].method.params
    params = data.draw(values if shape is Nothing else near(shape))
    if name == "process/start" and isinstance(params, dict):
        # Nothing may run whatever is drawn.
        params["argv"] = ["/no/such/program"] if params.get("argv") else params.get("argv")
    if name == "initialize" and isinstance(params, dict):
        # Only who is new may try.
        params.pop("resumeSessionId", None)
    message = {"id": "fuzz", "method": name, "params": params}
    answers = live.send(json.dumps(message).encode())
    assert answers is not None
    assert [answer["id"] for answer in answers] == ["fuzz"]


def test_every_method_of_processes_is_tried_alive():
    of_processes = {method.name for method in METHODS if method.name.startswith("process/")}
    assert of_processes <= HARMLESS
