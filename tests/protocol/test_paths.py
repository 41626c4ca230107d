"""file: URIs and native paths."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.errors import InvalidParams
from exec_server.protocol.paths import ForeignPath, from_uri, normalised, to_native, to_uri
from tests.requirements import requirement

NAMES = st.binary(min_size=1, max_size=8).map(lambda name: name.translate(None, b"/\0"))
SEGMENTS = st.one_of(st.sampled_from([b"", b".", b"..", b"C:", b"c:", b"C|", b"%00"]), NAMES)
PATHS = st.lists(SEGMENTS, max_size=6).map(lambda segments: b"/" + b"/".join(segments))
# Texts that are similar to URIs, to reach every branch, and any other text.
PIECES = ["file:", "FILE:", "/", "//", "\\", "..", ".", "%2e", "%2F", "%00", "%", "C:", "c|"]
PIECES += ["%3A", "localhost", "[", "@", "?", "#", "bad", "path", "L0M6", "\udcff", "é", " ", "\t"]
TEXTS = st.one_of(
    st.text(),
    st.lists(st.sampled_from(PIECES), max_size=10).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=8).map(lambda pieces: "file:///" + "".join(pieces)),
)


def refusal(uri: str) -> InvalidParams:
    with pytest.raises(InvalidParams) as caught:
        from_uri(uri)
    return caught.value


@requirement("path/uri:forms")
@pytest.mark.parametrize(
    "uri", ["file:///usr", "file:///usr/", "FILE:///usr", "File:///usr", "file:/usr", "file:usr"]
)
def test_a_path_is_written_with_three_slashes_one_or_none(uri):
    assert from_uri(uri) == b"/usr"


@requirement("path/uri:forms")
@pytest.mark.parametrize("uri", ["file:", "file:/", "file://", "file:///", "file://localhost"])
def test_no_path_is_the_root(uri):
    assert from_uri(uri) == b"/"


@requirement("path/uri:localhost")
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "LocalHost", "%6cocalhost"])
def test_localhost_is_this_host(host):
    assert from_uri(f"file://{host}/usr") == b"/usr"


@requirement("path/uri:dot-segments")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///tmp/../usr/./bin", b"/usr/bin"),
        ("file:///%2e%2e/usr/bin", b"/usr/bin"),
        ("file:///tmp/.%2E/usr/%2e/bin", b"/usr/bin"),
        ("file:///tmp/%2E./usr", b"/usr"),
        ("file:///usr/bin/..", b"/usr"),
        ("file:///../..", b"/"),
        ("file:///usr/...", b"/usr/..."),
        ("file:///tmp%2f..%2fusr", b"/usr"),
        ("file:///tmp/%2e%2e%2fusr", b"/usr"),
    ],
)
def test_dot_segments_are_removed_without_a_look_at_the_disk(uri, path):
    assert from_uri(uri) == path


@requirement("path/uri:separators")
@pytest.mark.parametrize(
    "uri",
    [
        "file:///usr%2Fbin",
        "file:///usr%2fbin",
        "file:///usr\\bin",
        "file:\\usr\\bin",
        "file:\\\\localhost\\usr\\bin",
    ],
)
def test_an_encoded_slash_and_a_backslash_separate(uri):
    assert from_uri(uri) == b"/usr/bin"


def test_an_encoded_backslash_is_part_of_a_name():
    assert from_uri("file:///usr%5cbin") == b"/usr\\bin"


@requirement("path/uri:repeated-slashes")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b//../c", b"/a/b/c"),
        ("file:///a///../../b", b"/a/b"),
        ("file:///usr//..//bin", b"/usr/bin"),
    ],
)
def test_a_repeated_slash_is_a_segment_that_dots_remove(uri, path):
    assert from_uri(uri) == path


@requirement("path/uri:normal")
@pytest.mark.parametrize(
    "uri",
    [
        "file:///usr//bin",
        "file:////usr/bin",
        "file:///usr/bin/",
        "file:///usr/bin//",
        "file:/usr/bin/.",
    ],
)
def test_the_path_has_no_repeated_and_no_trailing_slash(uri):
    assert from_uri(uri) == b"/usr/bin"


@requirement("path/uri:percent")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///%75sr", b"/usr"),
        ("file:///a%20b%25c%23%3F", b"/a b%c#?"),
        ("file:///%C3%A9", "/é".encode()),
        ("file:///a%ffb", b"/a\xffb"),
        ("file:///%2541", b"/%41"),
        ("file:///%zz", b"/%zz"),
        ("file:///a%", b"/a%"),
        ("file:///a%4", b"/a%4"),
    ],
)
def test_percent_escapes_become_bytes_and_a_lone_percent_sign_stays(uri, path):
    assert from_uri(uri) == path


@requirement("path/uri:raw-characters")
@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a b", b"/a b"),
        ("file:///é\N{GRINNING FACE}", "/é\N{GRINNING FACE}".encode()),
        ('file:///~"<>`{}^|[]', b'/~"<>`{}^|[]'),
        ("file:///a\x01b\x7f", b"/a\x01b\x7f"),
        (" \x01file:///usr \n", b"/usr"),
        ("fi\tle:///u\r\nsr", b"/usr"),
        ("file:///usr\u00a0", "/usr\u00a0".encode()),
    ],
)
def test_raw_characters_count_as_encoded_except_blanks_around_and_line_breaks(uri, path):
    assert from_uri(uri) == path


@requirement("path/uri:no-base")
@pytest.mark.parametrize(
    "text", ["", " ", "tmp", "~", "/usr", "./a", "//x/y", "?x", "file", "1a:b", ":x", "é:x"]
)
def test_what_has_no_scheme_is_refused(text):
    assert refusal(text).message == "invalid URI: relative URL without a base"


@requirement("path/uri:other-scheme")
@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("http://x/y", "http"), ("HTTP://x", "http"), ("C:\\x", "c"), ("a+b-c.d:e", "a+b-c.d")],
)
def test_another_scheme_is_refused(uri, scheme):
    assert refusal(uri).message == f"unsupported path URI scheme `{scheme}`"


@requirement("path/uri:query-and-fragment")
@pytest.mark.parametrize("uri", ["file:///usr?", "file:///usr?x=1", "file:?#", "file://server/?"])
def test_a_query_is_refused_even_when_empty(uri):
    assert refusal(uri).message == "query parameters are not allowed in path URIs"


@requirement("path/uri:query-and-fragment")
@pytest.mark.parametrize("uri", ["file:///usr#", "file:///usr#f", "file:#?"])
def test_a_fragment_is_refused_even_when_empty(uri):
    assert refusal(uri).message == "fragments are not allowed in path URIs"


@requirement("path/uri:credentials-and-port")
@pytest.mark.parametrize(
    "authority",
    ["user@localhost", "user:secret@localhost", "@", "localhost:80", "localhost:", "lo cal", "%ff"],
)
def test_credentials_a_port_and_a_malformed_host_are_refused(authority):
    error = refusal(f"file://{authority}/usr")
    assert error.message == "invalid URI: invalid international domain name"
    assert not isinstance(error, ForeignPath)


def test_a_malformed_address_is_refused():
    assert refusal("file://[::1/x").message == "invalid URI: invalid IPv6 address"


@requirement("path/uri:nul")
@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("file:///u%00sr", "file:///u%00sr"),
        ("FILE:/a\\u%00", "file:///a/u%00"),
        ("file:///x\0y", "file:///x%00y"),
        ("file:///é x%00", "file:///%C3%A9%20x%00"),
        ("file://server/%00", "file://server/%00"),
    ],
)
def test_a_nul_is_refused(uri, spelled):
    error = refusal(uri)
    assert error.message == f"'{spelled}' is invalid on 'linux'"
    assert not isinstance(error, ForeignPath)


@requirement("path/uri:foreign-host", "path/uri:foreign-is-told-apart")
@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("file://server/usr", "file://server/usr"),
        ("file://SERVER//share/./a b", "file://server/share/a%20b"),
        ("file://server", "file://server/"),
        ("file://127.0.0.1/x", "file://127.0.0.1/x"),
        ("file://[::1]/x", "file://[::1]/x"),
        ("file://localhost./x", "file://localhost./x"),
    ],
)
def test_a_path_on_another_host_is_foreign(uri, spelled):
    error = refusal(uri)
    assert isinstance(error, ForeignPath)
    assert (error.uri, error.message) == (spelled, f"'{spelled}' is invalid on 'linux'")


@requirement("path/uri:drive-letter", "path/uri:foreign-is-told-apart")
@pytest.mark.parametrize(
    ("uri", "spelled"),
    [
        ("file:///C:/x", "file:///C:/x"),
        ("file:///c:/x", "file:///C:/x"),
        ("file:///C:", "file:///C:"),
        ("file:C:/x", "file:///C:/x"),
        ("file://C:/x", "file:///C:/x"),
        ("file:////C:/x", "file:///C:/x"),
        ("file:///./c:/x", "file:///C:/x"),
        ("file:///c%3a/x", "file:///C%3a/x"),
        ("file:/c|/x", "file:///C:/x"),
        ("file:///C:/../x", "file:///C:/x"),
        ("file:///C:/x/../..", "file:///C:/"),
    ],
)
def test_a_drive_letter_is_foreign_and_dots_do_not_leave_it(uri, spelled):
    error = refusal(uri)
    assert isinstance(error, ForeignPath)
    assert (error.uri, error.message) == (spelled, f"'{spelled}' is invalid on 'linux'")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///C:x", b"/C:x"),
        ("file:///C|/x", b"/C|/x"),
        ("file:///usr/C:/x", b"/usr/C:/x"),
        ("file:///CC:/x", b"/CC:/x"),
    ],
)
def test_what_only_resembles_a_drive_is_a_name(uri, path):
    assert from_uri(uri) == path


@requirement("path/uri:reserved-form")
@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (b"/C:/x", "file:///%00/bad/path/L0M6L3g"),
        (b"/c:/x", "file:///%00/bad/path/L2M6L3g"),
        (b"/C:", "file:///%00/bad/path/L0M6"),
        (b"/C:/\xff", "file:///%00/bad/path/L0M6L_8"),
    ],
)
def test_a_path_that_looks_like_a_drive_travels_in_the_reserved_form(path, uri):
    assert to_uri(path) == uri
    assert from_uri(uri) == path


@requirement("path/uri:reserved-form-strict")
@pytest.mark.parametrize(
    "tail", ["", "!!", "L0M6L3g=", "L0M6L3h", "L0M6L3g/", "L", "%4c0M6L3g", "L0M6L3g%00"]
)
def test_the_reserved_form_takes_only_unpadded_url_safe_base64(tail):
    uri = f"file:///%00/bad/path/{tail}"
    error = refusal(uri)
    assert error.message == f"'{uri}' is invalid on 'linux'"
    assert not isinstance(error, ForeignPath)


@requirement("path/uri:reserved-form-only-where-needed")
@pytest.mark.parametrize(
    "tail",
    [
        pytest.param("L3Vzcg", id="/usr"),
        pytest.param("L0M6eA", id="/C:x"),
        pytest.param("L0M6L3gv", id="/C:/x/"),
        pytest.param("L0M6Ly4uL3Vzcg", id="/C:/../usr"),
        pytest.param("Ly9DOi94", id="//C:/x"),
        pytest.param("QzoveA", id="C:/x"),
        pytest.param("L0M6L2EA", id="/C:/a NUL"),
    ],
)
def test_a_path_with_a_plain_uri_is_foreign_in_the_reserved_form(tail):
    assert isinstance(refusal(f"file:///%00/bad/path/{tail}"), ForeignPath)


@requirement("path/native:literal")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/usr", b"/usr"),
        ("/a%20b?c#d", b"/a%20b?c#d"),
        ("/a/../b//c/", b"/a/../b//c/"),
        ("/C:/x", b"/C:/x"),
        ("/\udcff", b"/\xff"),
        ("/é\n", "/é\n".encode()),
    ],
)
def test_a_text_that_starts_with_a_slash_is_the_path_itself(text, path):
    assert to_native(text) == path


@requirement("path/native:uri")
def test_any_other_text_is_read_as_a_uri():
    assert to_native("file:///a%20b") == b"/a b"
    with pytest.raises(InvalidParams, match="relative URL without a base"):
        to_native("tmp")


@requirement("path/native:refused")
@pytest.mark.parametrize("text", ["/a\0b", "/\ud800"])
def test_a_native_path_that_no_system_call_takes_is_refused(text):
    with pytest.raises(InvalidParams):
        to_native(text)


@requirement("path/output:encoding")
@pytest.mark.parametrize(
    ("path", "uri"),
    [
        (b"/tmp/a b%c", "file:///tmp/a%20b%25c"),
        ("/we ird#dé", "file:///we%20ird%23d%C3%A9"),
        ("/\udcff", "file:///%FF"),
        (b"/\xff\xfe", "file:///%FF%FE"),
        (b"/", "file:///"),
    ],
)
def test_a_path_is_written_percent_encoded(path, uri):
    assert to_uri(path) == uri


@requirement("path/output:encoding")
def test_exactly_these_ascii_characters_stand_for_themselves():
    uri = to_uri(b"/" + bytes(range(1, 128)).replace(b"/", b"").replace(b".", b"x."))
    assert uri == (
        "file:///%01%02%03%04%05%06%07%08%09%0A%0B%0C%0D%0E%0F%10%11%12%13%14%15%16%17%18%19%1A"
        "%1B%1C%1D%1E%1F%20!%22%23$%25&'()*+,-x.0123456789:;%3C=%3E%3F@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        "[%5C]^_%60abcdefghijklmnopqrstuvwxyz%7B|%7D~%7F"
    )


@requirement("path/output:normal")
@pytest.mark.parametrize(
    ("path", "uri"),
    [(b"/a/../b//c/", "file:///b/c"), (b"//x", "file:///x"), (b"/C:/../usr", "file:///usr")],
)
def test_a_path_is_written_in_its_normal_form(path, uri):
    assert to_uri(path) == uri


@pytest.mark.parametrize("path", ["", "a", b"a/b", b"/a\0b"])
def test_a_relative_path_and_one_with_a_nul_have_no_uri(path):
    with pytest.raises(ValueError, match="not an absolute path: '"):
        to_uri(path)


@requirement("path/output:round-trip")
@given(PATHS)
def test_every_path_survives_the_way_through_its_uri(path):
    assert from_uri(to_uri(path)) == normalised(path)


@given(PATHS)
def test_a_written_uri_is_plain_ascii_and_says_one_thing(path):
    uri = to_uri(path)
    assert re.fullmatch(r"file:///[A-Za-z0-9!$%&'()*+,\-./:;=@\[\]^_|~]*", uri)
    assert to_uri(from_uri(uri)) == uri


@given(PATHS)
def test_normal_paths_have_no_empty_or_dotted_parts_and_stay_as_they_are(path):
    normal = normalised(path)
    assert normal == b"/" or not {b"", b".", b".."} & set(normal[1:].split(b"/"))
    assert normalised(normal) == normal


@given(PATHS.filter(lambda path: not path.startswith(b"//")))
def test_normal_means_what_the_standard_library_means_by_it(path):
    assert normalised(path) == os.path.normpath(path)


@given(TEXTS)
def test_any_text_is_a_normal_path_or_refused_as_promised(text):
    try:
        path = from_uri(text)
    except InvalidParams:
        return
    assert normalised(path) == path
    assert b"\0" not in path


@given(TEXTS)
def test_any_text_is_a_native_path_or_refused_as_promised(text):
    try:
        path = to_native(text)
    except InvalidParams:
        return
    assert path.startswith(b"/")
    assert b"\0" not in path


@given(PATHS)
def test_a_native_path_is_taken_byte_for_byte(path):
    assert to_native(os.fsdecode(path)) == path


@requirement("path/output:round-trip")
@given(st.lists(st.sampled_from([b"a", b".", b"..", b".a", b"C:", b"~", b"", b"a\n"]), max_size=5))
def test_a_plain_path_is_written_as_all_others_are(segments):
    """A path that is not normal is written in another way, and has the same URI."""
    path = b"/" + b"/".join(segments)
    assert to_uri(path) == to_uri(b"/." + path)
