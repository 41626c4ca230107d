"""The shapes of fs/*: what decodes, what does not, and what is encoded."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams, InvalidRequest
from exec_server.protocol import file_delta, file_search, file_watch, fs
from exec_server.protocol.base64 import Base64Error, Blob, LazyBlob, LongBase64, encode_base64
from exec_server.protocol.method import Method
from exec_server.protocol.paths import PathUri, normalised
from exec_server.rpc import boundary
from exec_server.server.server import ROUTES
from tests.requirements import requirement

METHODS = [
    value
    for module in (fs, file_delta, file_search, file_watch)
    for value in vars(module).values()
    if isinstance(value, Method)
]
NATIVE = st.lists(
    st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & {0, 0x2F}), max_size=5
).map(lambda names: b"/" + b"/".join(names))


@requirement("fs:one-handler-each")
def test_every_method_has_a_handler():
    assert {method.name for method in METHODS} == {
        name for name in ROUTES if name.startswith("fs/")
    }
    assert len(METHODS) == 26


@given(NATIVE)
@requirement("fs:any-name", "fs:lexical-paths")
def test_any_native_path_comes_back_from_its_uri(path):
    assert PathUri.of(path).native == normalised(path)


@given(st.text(max_size=20))
@requirement("fs:shape-first", "fs:lexical-paths")
def test_any_text_is_a_normal_path_or_refused(text):
    try:
        path = PathUri(text).native
    except (InvalidParams, InvalidRequest):
        return
    assert path == normalised(path)
    assert b"\0" not in path


@given(st.text("abc.-_~/%: |", max_size=12))
@requirement("fs:lexical-paths")
def test_plain_uris_are_read_as_all_others_are(tail):
    """A URI with an escape is parsed in another way, and names the same path."""

    def outcome(text: str) -> object:
        try:
            return PathUri(text).native
        except (InvalidParams, InvalidRequest) as exc:
            return type(exc)

    assert outcome(f"file:///{tail}") == outcome(f"file:///%2E/{tail}")


@requirement("fs:foreign-path")
def test_a_foreign_path_is_refused_where_it_is_used():
    path = PathUri("file://server/share")
    with pytest.raises(InvalidRequest, match="is invalid on 'linux'"):
        _ = path.native


@pytest.mark.parametrize("text", ["", "a", "./a", "http://x/a", "file:///a?b", "file:///a#b"])
@requirement("fs:shape-first")
def test_a_text_that_is_no_path_does_not_decode(text):
    with pytest.raises(InvalidParams):
        boundary.decode_params(fs.ReadFileParams, {"path": text})


@pytest.mark.parametrize("value", [None, 1, True, [], {}, b"x"])
@requirement("fs:shape-first", "fs/writeFile:base64")
def test_what_is_no_string_does_not_decode(value):
    with pytest.raises(InvalidParams, match="Expected `str`"):
        boundary.decode_params(fs.ReadFileParams, {"path": value})
    with pytest.raises(InvalidParams, match="Expected `str`"):
        boundary.decode_params(fs.WriteFileParams, {"path": "/a", "dataBase64": value})


@requirement("fs/writeFile:base64")
def test_the_content_of_a_write_is_judged_later():
    params = boundary.decode_params(fs.WriteFileParams, {"path": "/a", "dataBase64": "?"})
    with pytest.raises(Base64Error):
        params.data_base64.decode()


@requirement("fs/writeFile:base64")
def test_large_content_arrives_decoded():
    params = boundary.decode_params(fs.WriteFileParams, {"path": "/a", "dataBase64": Blob(b"x")})
    assert params.data_base64.decode() == b"x"


@pytest.mark.parametrize("value", [-1, 1.0, 1.5, "1", True, None, 1 << 64, 1e30])
@requirement("fs:numbers")
def test_a_number_out_of_range_does_not_decode(value):
    with pytest.raises(InvalidParams):
        boundary.decode_params(fs.ReadBlockParams, {"handleId": "h", "offset": value, "len": 1})


@pytest.mark.parametrize("value", [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@requirement("fs:numbers")
def test_a_number_in_range_decodes(value):
    params = {"handleId": "h", "offset": value, "len": 1}
    assert boundary.decode_params(fs.ReadBlockParams, params).offset == value


@pytest.mark.parametrize(
    ("shape", "params"),
    [
        (fs.ReadFileParams(PathUri("file:///a"), follow_symlinks=False), {"followSymlinks": False}),
        (fs.WriteFileParams(PathUri("file:///a"), LazyBlob(b"x")), {"dataBase64": "eA=="}),
        (fs.RemoveParams(PathUri("file:///a"), recursive=False), {"recursive": False}),
        (
            fs.SetPermissionsParams(PathUri("file:///a"), mode=0o644, modified_at_ms=-1),
            {"mode": 420, "modifiedAtMs": -1},
        ),
    ],
)
@requirement("fs:optional-null")
def test_what_is_not_set_is_not_sent(shape, params):
    assert msgspec.json.decode(boundary.encode(shape)) == {"path": "file:///a", **params}


@requirement("fs:optional-null")
def test_null_is_as_good_as_absent():
    params = {"path": "file:///a", "followSymlinks": None, "sandbox": None, "unknown": [1]}
    assert boundary.decode_params(fs.GetMetadataParams, params) == fs.GetMetadataParams(
        PathUri("file:///a")
    )


@given(size=st.integers(0, 10), where=st.integers(0, 100), junk=st.sampled_from("= ?-\\\n"))
@requirement("fs/writeFile:base64")
def test_long_base64_is_strict_wherever_it_is_cut(size, where, junk):
    """Long base64 is as strict as short base64, and gives the same bytes."""
    data = bytes(range(256)) * 16 + bytes(size)
    text = encode_base64(data)
    spoiled = bytearray(text)
    spoiled[where % len(text)] = ord(junk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exec_server.protocol.base64.PIECE_CHARS", 64)
        found = LongBase64.of(memoryview(text))
        assert b"".join(found.pieces()) == found.decode() == data
        with pytest.raises(Base64Error):
            LongBase64.of(memoryview(spoiled))


@requirement("fs/writeFile:base64")
def test_padding_ends_base64_even_where_it_is_cut():
    group = encode_base64(b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exec_server.protocol.base64.PIECE_CHARS", 4)
        assert list(LongBase64.of(memoryview(b"eHh4" + group)).pieces()) == [b"xxx", b"x"]
        assert list(LongBase64.of(memoryview(b"")).pieces()) == [b""]
        for text in (group + group, group + b"eHh4", b"eHh4" + b"eR==", b"eHh4e"):
            with pytest.raises(Base64Error):
                LongBase64.of(memoryview(text))
