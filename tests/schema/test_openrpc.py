"""The protocol as data: complete, current, and accepted by a validator of others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from exec_server.errors import RpcError
from exec_server.schema.catalog import declared
from exec_server.schema.comments import Comments, is_ours, without_owner
from exec_server.schema.openrpc import json_schemas, openrpc
from tests.requirements import requirement
from tests.support.schema_checks import problems_of_params, problems_of_result
from tests.support.servers import OURS
from tests.support.wire import Wire

ROOT = Path(__file__).parents[2]
EXAMPLES = json.loads((ROOT / "src/exec_server/schema/examples.json").read_text())
# The answer is the document itself.
WITHOUT_EXAMPLE = {"rpc.discover"}


@requirement("schema:current")
def test_the_files_are_as_the_code_says():
    command = [sys.executable, str(ROOT / "scripts" / "protocol.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@requirement("schema:complete")
def test_every_method_and_event_is_described_and_has_an_example():
    undescribed = [each.item.name for each in declared() if not each.description]
    assert not undescribed
    names = {each.item.name for each in declared()}
    assert names - EXAMPLES.keys() == WITHOUT_EXAMPLE
    assert not EXAMPLES.keys() - names


@requirement("schema:examples")
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_are_as_the_schemas_say(name):
    example = EXAMPLES[name]
    assert problems_of_params(name, example["params"] or {}) == []
    if "result" in example:
        assert problems_of_result(name, example["result"]) == []


@requirement("schema:valid")
def test_the_schemas_are_json_schemas_and_all_references_lead_somewhere():
    document = json_schemas()
    jsonschema.Draft202012Validator.check_schema(document)
    text = json.dumps(document)
    names = {part.partition('"')[0] for part in text.split('"#/$defs/')[1:]}
    assert names <= document["$defs"].keys()


@requirement("schema:errors")
def test_errors_have_their_codes_and_say_what_they_mean():
    found = openrpc()["components"]["errors"]
    for name, error in found.items():
        assert error["message"] != name, name
        assert error["code"] < 0
    assert found["NotFound"] == {"code": -32004, "message": "a file that does not exist"}
    assert isinstance(RpcError.from_wire(-32004, "no"), RpcError)


@requirement("schema:dialects")
def test_a_member_of_ours_is_marked_and_described():
    start = json_schemas()["$defs"]["StartParams"]["properties"]
    assert start["durable"]["x-dialect"] == "ours"
    assert start["durable"]["description"].startswith("The process outlives the server.")
    assert "x-dialect" not in start["argv"]


@requirement("schema:dialects")
async def test_the_reference_knows_exactly_the_methods_that_are_not_ours(reference):
    async with Wire(reference.url) as wire:
        for each in declared():
            if each.sender == "server" or "result" not in dir(each.item):
                continue
            answer = await wire.answer(await wire.request(each.item.name, {}))
            is_unknown = answer.get("error", {}).get("code") == -32601
            assert is_unknown == (each.item.dialect == "ours"), (each.item.name, answer)


@requirement("schema:discover")
async def test_a_server_answers_with_the_document(wire):
    info = await wire.call("environment/info")
    assert info["capabilities"]["rpcDiscover"] is True
    assert await wire.call("rpc.discover") == json.loads(json.dumps(openrpc()))


@requirement("schema:command")
def test_the_command_prints_both_forms():
    assert json.loads(_printed("protocol").stdout) == json.loads(json.dumps(openrpc()))
    assert "StartParams" in json.loads(_printed("protocol", "--json-schema").stdout)["$defs"]
    wrong = _printed("protocol", "--openrpc", "--json-schema")
    assert wrong.returncode == 2
    assert "cannot be used with" in wrong.stderr


def _printed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OURS, *words], capture_output=True, text=True, timeout=60, check=False)


def test_comments_above_members_and_constants_are_found():
    found = Comments(
        "# About it.\n# In two lines.\nA = 1\n\n"
        "class B:\n    # Ours, with `x`: the member.\n    c: int\n"
    ).texts
    assert found == {
        ("", "A"): "About it. In two lines.",
        ("B", "c"): "Ours, with `x`: the member.",
    }
    assert is_ours(found["B", "c"])
    assert without_owner(found["B", "c"]) == "With `x`: the member."
    assert without_owner("Ours: one.") == "One."
    assert without_owner("Not ours.") == "Not ours."
