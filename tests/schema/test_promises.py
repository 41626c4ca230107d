"""Errors, limits, order and "since" of methods, the relay's frames, and the pages for people."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import jsonschema
import pytest

from exec_server.limits import Limits
from exec_server.relay.relay_pb2 import DESCRIPTOR
from exec_server.schema import promises
from exec_server.schema.catalog import declared, error_kinds
from exec_server.schema.openrpc import json_schemas, openrpc
from exec_server.schema.relay_frames import FRAME
from tests.requirements import requirement

ROOT = Path(__file__).parents[2]
METHODS = {method["name"]: method for method in openrpc()["methods"]}
FRAMES = {frame["name"]: frame for frame in openrpc()["x-relay-frames"]}


@requirement("schema:promises")
def test_what_is_promised_is_about_methods_and_limits_that_exist():
    names = {each.item.name for each in declared()}
    since = {name for group in promises._SINCE.values() for name in group}
    assert since <= names
    assert promises._ORDER.keys() <= names
    for table in (promises._ERRORS, promises._LIMITS):
        unused = [start for start in table if not any(name.startswith(start) for name in names)]
        assert not unused
    limits = {name for group in promises._LIMITS.values() for name in group}
    assert limits <= set(Limits.__struct_fields__)


@requirement("schema:promises")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_since_when_it_exists_and_which_errors_it_gives(name):
    method = METHODS[name]
    is_ours = method["x-since"].startswith("exec-server ")
    assert is_ours == (method["x-dialect"] == "ours")
    assert ("errors" in method) == ("result" in method)
    kinds = {kind.__name__ for kind in error_kinds()}
    named = [each["$ref"].rpartition("/")[2] for each in method.get("errors", ())]
    assert set(named) <= kinds
    assert len(set(named)) == len(named)
    assert all(member["x-dialect"] for member in method["params"])


@requirement("schema:promises")
def test_errors_differ_from_method_to_method():
    def codes(name: str) -> set[str]:
        return {each["$ref"].rpartition("/")[2] for each in METHODS[name]["errors"]}

    assert "NotFound" in codes("fs/readFile")
    assert "NotFound" not in codes("process/write")
    assert "SessionAttached" in codes("initialize")
    assert "SessionAttached" not in codes("process/start")


@requirement("schema:relay")
def test_the_frames_have_the_fields_of_the_compiled_protobuf():
    schemas = json_schemas()["$defs"]
    for name, message in DESCRIPTOR.message_types_by_name.items():
        said = {field: each["x-number"] for field, each in schemas[name]["properties"].items()}
        assert said == {field.name: field.number for field in message.fields}
    bodies = DESCRIPTOR.message_types_by_name[FRAME].oneofs_by_name["body"].fields
    assert FRAMES.keys() == {field.name for field in bodies}


@requirement("schema:relay")
@pytest.mark.parametrize("name", FRAMES)
def test_an_example_of_a_frame_is_as_the_schema_says(name):
    schema = {"$ref": f"#/$defs/{FRAME}", "$defs": json_schemas()["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(FRAMES[name]["example"])
    assert name in FRAMES[name]["example"]


@requirement("schema:pages")
def test_every_method_has_a_page_that_the_index_links():
    pages = runpy.run_path(str(ROOT / "scripts" / "protocol.py"))
    made = pages["written"]()
    index = made["README.md"].decode()
    for name in METHODS:
        page = f"methods/{pages['page_name'](name)}"
        assert f"({page})" in index
        text = made[page].decode()
        assert text.startswith(f"# {name}\n")
        assert ("## Errors" in text) == ("errors" in METHODS[name])
    assert json.loads(made["openrpc.json"]) == json.loads(json.dumps(openrpc()))
