"""JSON-RPC messages, decoded and encoded."""

from __future__ import annotations

import base64
import json
import math
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.errors import MalformedMessage
from exec_server.limits import DEFAULT_LIMITS, Limits
from exec_server.protocol import envelope
from exec_server.protocol.base64 import Blob
from exec_server.protocol.envelope import (
    ErrorResponse,
    Message,
    Notification,
    Request,
    Response,
    decode,
)
from exec_server.protocol.method import NOTHING
from tests.requirements import requirement

# A slow checker with Python's own parser, in which every rule of the envelope is written again.


class Refused(Exception):
    """The slow checker's verdict."""


def slow_tree(data: bytes, *, max_values: int = 262_144, max_depth: int = 127) -> Any:
    """The JSON value in *data*, or Refused."""

    def refuse(*_: object) -> None:
        raise Refused

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(members)) != len(members):
            raise Refused
        return dict(members)

    try:
        text = data.decode("utf-8")
        tree = json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
    except (ValueError, RecursionError) as exc:
        raise Refused from exc
    values, depth = measure(tree)
    if values > max_values or depth > max_depth:
        raise Refused
    return tree


def measure(value: Any) -> tuple[int, int]:
    """The number of values, and the largest depth of containers."""
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise Refused
        return 1, 0
    if not isinstance(value, dict | list):
        return 1, 0
    if isinstance(value, dict):
        for key in value:
            measure(key)
    members = [measure(item) for item in (value.values() if isinstance(value, dict) else value)]
    return (
        1 + sum(count for count, _ in members),
        1 + max((depth for _, depth in members), default=0),
    )


def slow_decode(data: bytes) -> Message:
    tree = slow_tree(data)
    if not isinstance(tree, dict):
        raise Refused
    if "method" in tree:
        needs(isinstance(tree["method"], str))
        if "id" not in tree:
            return Notification(tree["method"], tree.get("params"))
        trace = tree.get("trace")
        if trace is not None:
            needs(isinstance(trace, dict))
            for name in ("traceparent", "tracestate"):
                needs(isinstance(trace.get(name), str | None))
        return Request(slow_id(tree), tree["method"], tree.get("params"), trace)
    if "result" in tree:
        return Response(slow_id(tree), tree["result"])
    needs(isinstance(tree.get("error"), dict))
    code, message = tree["error"].get("code"), tree["error"].get("message")
    needs(type(code) is int and -(2**63) <= code < 2**63)
    needs(isinstance(message, str))
    return ErrorResponse(slow_id(tree), code, message)


def slow_id(tree: dict[str, Any]) -> Any:
    value = tree.get("id")
    needs(isinstance(value, str) or (type(value) is int and -(2**63) <= value < 2**63))
    return value


def needs(holds: bool) -> None:
    if not holds:
        raise Refused


def assert_same(data: bytes) -> None:
    """Our decoder and the slow checker agree on *data*."""
    try:
        expected = slow_decode(data)
    except Refused:
        with pytest.raises(MalformedMessage):
            decode(data)
    else:
        assert plain(decode(data)) == expected


def plain(message: Message) -> Message:
    """*message* with the blobs that were decoded early turned back into text."""
    params = getattr(message, "params", None)
    if isinstance(params, dict):
        for name, value in params.items():
            if isinstance(value, Blob):
                params[name] = base64.b64encode(value.data).decode()
    return message


# JSON as text, in which keys repeat, blanks are everywhere and keys have many spellings.

blanks = st.sampled_from(["", "", "", " ", "\n", "\t \r"])
keys = st.sampled_from(
    ['"a"', '"\\u0061"', '"b"', '"a:"', '"\\":"', '"\\\\"', '"é"', '"\\u00e9"', '""', '"chunk"']
)
# Only numbers that a double can distinguish, because they are compared by value.
scalars = st.sampled_from(
    ["null", "true", "false", "0", "-0", "-1", "1.5", "1e3", "1E+2", f"{2**64}", "1e400"]
) | st.builds(
    lambda text, is_ascii: json.dumps(text, ensure_ascii=is_ascii),
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(['":"', '",{"', "\\", "[]"]),
    st.booleans(),
)


def array(items: list[str], blank: str) -> str:
    return "[" + blank + f"{blank},".join(items) + blank + "]"


def an_object(members: list[tuple[str, str]], blank: str) -> str:
    inner = f"{blank},{blank}".join(f"{key}{blank}:{blank}{value}" for key, value in members)
    return "{" + blank + inner + "}"


json_texts = st.recursive(
    scalars,
    lambda children: (
        st.builds(array, st.lists(children, max_size=4), blanks)
        | st.builds(an_object, st.lists(st.tuples(keys, children), max_size=4), blanks)
    ),
    max_leaves=12,
)
# Objects with any combination of the members that decide the kind of a message.
messages = st.builds(
    an_object,
    st.lists(
        st.tuples(
            st.sampled_from(
                ['"id"', '"method"', '"params"', '"result"', '"error"', '"trace"', '"jsonrpc"']
            ),
            st.sampled_from(['"m"', "1", "-9223372036854775808", "9223372036854775808", "1.0"])
            | st.sampled_from(
                [
                    '{"code":1,"message":"m"}',
                    '{"code":9223372036854775808,"message":"m"}',
                    '{"code":-32600,"message":"m","data":[]}',
                    '{"traceparent":"t"}',
                    '{"tracestate":1}',
                    '{"traceparent":null}',
                ]
            )
            | json_texts,
        ),
        max_size=5,
    ),
    blanks,
)


# Requests as most clients send them, with a member more or a byte that is wrong.
requests = st.builds(
    lambda members, blank, order: an_object(order.sample(members, len(members)), blank),
    st.lists(
        st.tuples(
            st.sampled_from(['"id"', '"i\\u0064"', '"method"', '"params"', '"trace"', '"a"']),
            st.sampled_from(["{}", '{"a":{}}', '{"a":{"b":{}}}', '{"a":1,"a":2}', '{"a":":"}'])
            | scalars,
        ),
        max_size=2,
    ).map(lambda more: [('"id"', "7"), ('"method"', '"m"'), ('"params"', '{"a":1}'), *more]),
    blanks,
    st.randoms(use_true_random=False),
)


def verdict(data: bytes, limits: Limits) -> object:
    """The message as text, so that 1 is not 1.0; or why there is none."""
    try:
        return repr(decode(data, limits))
    except MalformedMessage as exc:
        return exc.args


@given(
    requests,
    st.none() | st.tuples(st.integers(0, 200), st.sampled_from([*b'"\\{}[]:, \n\0', 0xFF, 0xED])),
    st.sampled_from([1, 2, 3, 127]),
    st.sampled_from([4, 16, 262_144]),
)
@example('{"id":7,"method":"m","method":"m"}', None, 127, 262_144)
@example('{"id":9223372036854775808,"method":"m"}', None, 127, 262_144)
@example('{"id":true,"method":"m"}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":1,"a":1}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":{"b":1}}}', None, 2, 262_144)
@example('{"id":7,"method":"m","params":{"a":{}}}', None, 2, 262_144)
@example('{"id":7,"method":"m","params":{"a":1,"b":2}}', None, 127, 4)
@example('{"id":7,"method":"m","params":{},"size":"x"}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{},"trace":{}}', None, 127, 262_144)
@example('{"id":7,"id":8,"method":"m","params":{}}', None, 127, 262_144)
@example('{"id":7.0,"method":"m","params":{}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":1e400}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":"file:///x","b":null}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":"file:///x","a" :1}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":":","b" :1,"b":1}}', None, 127, 262_144)
@example('{"id":7,"id"\t:8,"method":"m","params":{"a":"file: :"}}', None, 127, 262_144)
@example('{"id":7,"method":"m","params":{"a":"\\":","a" :1}}', None, 127, 262_144)
@requirement("envelope/duplicate-keys")
def test_the_short_way_for_usual_requests_gives_the_answers_of_the_long_one(
    text, damage, depth, values
):
    data = bytearray(text.encode())
    if damage is not None:
        data[damage[0] : damage[0] + 1] = bytes(damage[1:])
    limits = Limits(json_depth=depth, json_values=values)
    short = verdict(bytes(data), limits)
    unread = msgspec.DecodeError()
    with mock.patch.object(envelope, "_decode_request", side_effect=unread):
        assert short == verdict(bytes(data), limits)


@pytest.mark.parametrize(
    "text",
    [
        '{"id":3,"method":"fs/getMetadata","params":{"path":"file:///w/.git","sandbox":null}}',
        '{"id":3,"method":"fs/readFile","params":{"path":"file:///a%20b","sandbox":null}}',
        '{"id":5,"method":"process/write","params":{"processId":"1-x","chunk":"Aw==","writeId":"1"}}',
        '{"id":5,"method":"process/read","params":{"processId":"1-x","afterSeq":0,"waitMs":9}}',
        '{"id":5,"method":"process/terminate","params":{"processId":"1-x"}}',
    ],
)
def test_the_usual_requests_of_clients_go_the_short_way(text, monkeypatch):
    """As Codex sends them; a space after a colon, or in a name, changes nothing."""
    monkeypatch.setattr(envelope, "_decode_closely", None)
    for each in (text, text.replace(":", ": ").replace("file: ", "file:"), text.replace("-", " ")):
        assert isinstance(decode(each.encode()), Request)


@given(json_texts)
@example('{"a":1,"a":1}')
@example('{"a":{"b":[{"c":1,"c":2}]}}')
@example('{"a" :1,"b":":"}')
@example('{"a" :1,"a":":"}')
@example("1e400")
@requirement("envelope/duplicate-keys", "envelope/params:any-value")
def test_any_json_is_judged_as_by_the_slow_checker(text):
    assert_same(f'{{"id":1,"method":"m","params":{text}}}'.encode())


@given(messages)
@requirement("envelope/kinds")
def test_any_object_is_taken_for_what_the_slow_checker_takes_it(text):
    assert_same(text.encode())


@given(json_texts, st.integers(0, 1000), st.sampled_from(list(b'"{}[],:\\ 0-+.eEnu\x00\xff\xc3')))
@requirement("envelope/invalid-json")
def test_a_damaged_text_is_judged_as_by_the_slow_checker(text, position, byte):
    data = bytearray(f'{{"id":1,"method":"m","params":{text}}}'.encode())
    position %= len(data)
    data[position] = byte
    assert_same(bytes(data))
    del data[position]
    assert_same(bytes(data))


@given(st.binary(max_size=40))
@requirement("envelope/invalid-json")
def test_any_bytes_are_a_message_or_malformed(data):
    assert_same(data)


# Examples.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id":1,"method":"m"}', Request(1, "m", None, None)),
        ('{"id":"","method":"","params":null}', Request("", "", None, None)),
        ('{"id":1,"method":"m","params":[1]}', Request(1, "m", [1], None)),
        ('{"id":1,"method":"m","params":"x"}', Request(1, "m", "x", None)),
        ('{"id":1,"method":"m","result":1,"error":2}', Request(1, "m", None, None)),
        ('{"jsonrpc":7,"id":1,"method":"m","x":{}}', Request(1, "m", None, None)),
        ('{"id":1,"method":"m","trace":{}}', Request(1, "m", None, {})),
        ('{"method":"m","params":{"a":1}}', Notification("m", {"a": 1})),
        ('{"method":"m","trace":5}', Notification("m", None)),
        ('{"id":-9223372036854775808,"result":null}', Response(-(2**63), None)),
        ('{"id":9223372036854775807,"result":1,"error":5}', Response(2**63 - 1, 1)),
        ('{"id":1,"error":{"code":-1,"message":"x","data":{}}}', ErrorResponse(1, -1, "x")),
        (' \r\n\t{"id":1,"method":"m"} \r\n\t', Request(1, "m", None, None)),
    ],
)
@requirement(
    "envelope/kinds", "envelope/unknown-members", "envelope/trace", "envelope/trailing-blanks"
)
def test_the_four_kinds_are_told_apart(text, message):
    assert decode(text.encode()) == message


@pytest.mark.parametrize(
    "value",
    ["null", "true", "{}", "[]", "1.0", "1e2", "-1.5", f"{2**63}", f"{-(2**63) - 1}"],
)
@pytest.mark.parametrize("rest", ['"method":"m"', '"result":1', '"error":{"code":1,"message":"m"}'])
@requirement("envelope/id")
def test_an_id_is_a_string_or_an_integer_of_64_bits(value, rest):
    with pytest.raises(MalformedMessage, match="id must be a string or a 64-bit integer"):
        decode(f'{{"id":{value},{rest}}}'.encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \n",
        b"[]",
        b'[{"id":1,"method":"m"}]',
        b'"m"',
        b"1",
        b"null",
        b"{}",
        b'{"id":1}',
        b'{"id":1,"method":5}',
        b'{"id":1,"method":null,"result":1}',
        b'{"result":1}',
        b'{"id":1,"error":null}',
        b'{"id":1,"error":{"code":1}}',
        b'{"id":1,"error":{"code":1.0,"message":"m"}}',
        b'{"id":1,"error":{"code":9223372036854775808,"message":"m"}}',
        b'{"id":1,"method":"m","trace":5}',
        b'{"id":1,"method":"m","trace":{"traceparent":5}}',
        b'{"id":1,"method":"m","params":NaN}',
        b'{"id":1,"method":"m","params":-Infinity}',
        b'{"id":1,"method":"m","params":01}',
        b'{"id":1,"method":"m","params":"\\ud800"}',
        b'{"id":1,"method":"m","params":{"\\udc00":1}}',
        b'{"id":1,"method":"\xff"}',
        b'\xef\xbb\xbf{"id":1,"method":"m"}',
        b'{"id":1,"method":"m"} x',
        b'{"id":1,"method":"m"}{"id":2,"method":"m"}',
        b'{"id":1,"method":"m",}',
        b'{"id":1,"id":1,"method":"m"}',
        b'{"id":1,"method":"m","params":{"a":1,"\\u0061":1}}',
        b'{"id":1,"method":"m","other":[{"a":[{"b":1,"b":1}]}]}',
    ],
)
@requirement("envelope/malformed")
def test_malformed_input_is_told_apart(data):
    with pytest.raises(Refused):
        slow_decode(data)
    with pytest.raises(MalformedMessage):
        decode(data)


def test_a_number_that_no_double_holds_is_any_json_value_too():
    request = decode(b'{"id":1,"method":"m","params":[1e400,-1e999999999999]}')
    assert isinstance(request, Request)
    assert request.params == [math.inf, -math.inf]


# Limits.


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("member", ["params", "other"])
@requirement("envelope/depth")
def test_a_hundred_and_twenty_seven_containers_deep_is_the_limit(opening, member):
    closing = {"[": "]", '{"a":': "}"}[opening]

    def nested(depth: int) -> bytes:
        # The root is one of the levels.
        value = opening * (depth - 1) + "1" + closing * (depth - 1)
        return f'{{"id":1,"method":"m","{member}":{value}}}'.encode()

    assert isinstance(decode(nested(127)), Request)
    with pytest.raises(MalformedMessage):
        decode(nested(128))


@pytest.mark.parametrize("depth", [128, 300, 480, 600, 900, 1000, 100_000, 1_000_000])
@requirement("envelope/depth")
def test_however_deep_it_is_only_malformed(depth):
    for text in ("[" * depth, "[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(MalformedMessage):
            decode(b'{"id":1,"method":"m","params":%b}' % text.encode())


@requirement("envelope/depth")
@given(st.text("[{", min_size=120, max_size=1100))
def test_the_depth_alone_decides(openings):
    head = "".join("[" if each == "[" else '{"a":' for each in openings)
    tail = "".join("]" if each == "[" else "}" for each in reversed(openings))
    data = f'{{"id":1,"method":"m","params":{head}1{tail}}}'.encode()
    if len(openings) + 1 <= 127:
        assert isinstance(decode(data), Request)
    else:
        with pytest.raises(MalformedMessage):
            decode(data)


def test_brackets_in_strings_and_beside_each_other_are_not_deep():
    assert isinstance(decode(b'{"id":1,"method":"m","params":"%b"}' % (b"[" * 5000)), Request)
    assert isinstance(decode(b'{"id":1,"method":"m","params":[%b[]]}' % (b"[]," * 5000)), Request)


def message_of(values: str) -> bytes:
    """A request with an array of *values* items; an empty one has four values."""
    return f'{{"id":1,"method":"m","params":[{values}]}}'.encode()


@requirement("envelope/value-count")
def test_exactly_as_many_values_as_allowed_pass():
    assert DEFAULT_LIMITS.json_values == 262_144
    assert isinstance(decode(message_of("1," * (262_144 - 5) + "1")), Request)
    with pytest.raises(MalformedMessage):
        decode(message_of("1," * (262_144 - 4) + "1"))


@given(st.lists(json_texts, min_size=1, max_size=4), blanks, st.integers(-1, 1))
@requirement("envelope/value-count")
def test_values_are_counted_as_by_the_slow_checker(texts, blank, over):
    # The number is large enough that the count matters, and small enough for many examples.
    limits = Limits(json_values=10_000)
    try:
        counts = [measure(json.loads(text))[0] for text in texts]
        slow_tree(f"[{','.join(texts)}]".encode())
    except Refused:
        return
    rounds = 5_000 // sum(counts)
    rest = limits.json_values - 4 - rounds * sum(counts) + over
    values = f"{blank},".join(texts * rounds + ["0"] * rest)
    if over > 0:
        with pytest.raises(MalformedMessage):
            decode(message_of(values), limits)
    else:
        assert isinstance(decode(message_of(values), limits), Request)


# Long base64 is decoded in another way, which must make no difference.

BULK = base64.b64encode(bytes(range(256)) * 200).decode()
bulk_values = st.sampled_from(
    [BULK, BULK, BULK[:-2], BULK[:-1] + "!", BULK + "\\n", BULK[:-4] + "AB==", "", "\\u0041A=="]
).map(lambda text: f'"{text}"')
bulk_members = st.lists(
    st.tuples(
        st.sampled_from(
            ['"chunk"', '"dataBase64"', '"ch\\u0075nk"', '"processId"', '"a\\"chunk\\":\\""', '"x"']
        ),
        bulk_values | json_texts,
    ),
    max_size=4,
)


@given(bulk_members, bulk_members, bulk_members, blanks)
@example([('"chunk"', f'"{BULK}"')], [], [], "")
@example([('"chunk"', f'"{BULK}"'), ('"x"', '{"chunk":"AA=="}')], [], [], "")
@example([('"chunk" ', '""'), ('"x"', f'{{"chunk":"{BULK}"}}')], [], [], "")
@example([('"ch\\u0075nk"', '""')], [], [('"chunk"', f'"{BULK}"')], "")
@requirement("envelope/bulk")
def test_large_base64_is_read_as_any_other_text(params, inner, beside, blank):
    members = [
        ('"id"', "1"),
        ('"other"', an_object(beside, blank)),
        ('"method"', '"process/write"'),
        ('"params"', an_object([*params, ('"inner"', an_object(inner, blank))], blank)),
    ]
    assert_same(an_object(members, blank).encode())


def test_large_base64_is_decoded_only_once():
    message = f'{{"id":1,"method":"process/write","params":{{"chunk":"{BULK}"}}}}'
    request = decode(message.encode())
    assert isinstance(request, Request)
    assert request.params == {"chunk": Blob(bytes(range(256)) * 200)}


# Output.


class Result(msgspec.Struct):
    a: int


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**63 - 1))
@requirement("envelope/output", "envelope/id:echoed")
def test_an_answer_echoes_the_id_with_its_type(request_id):
    answer = json.loads(envelope.encode_result(request_id, Result(1)))
    assert answer == {"id": request_id, "result": {"a": 1}}
    error = json.loads(envelope.encode_error(request_id, -32600, "é"))
    assert error == {"error": {"code": -32600, "message": "é"}, "id": request_id}
    assert type(answer["id"]) is type(error["id"]) is type(request_id)


@requirement("envelope/output")
def test_output_is_compact_utf8_without_a_jsonrpc_member():
    assert envelope.encode_result("é", NOTHING) == '{"id":"é","result":{}}'.encode()
    assert (
        envelope.encode_error(-1, -32600, "ü")
        == '{"error":{"code":-32600,"message":"ü"},"id":-1}'.encode()
    )
    assert envelope.encode_notification("m", b"{}") == b'{"method":"m","params":{}}'


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 2**63 - 1))
def test_a_request_of_ours_is_one(method, request_id):
    data = envelope.encode_request(request_id, method, b'{"a":1}', b'{"traceparent":"t"}')
    assert decode(data) == Request(request_id, method, {"a": 1}, {"traceparent": "t"})
