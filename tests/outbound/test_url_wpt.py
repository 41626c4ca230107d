"""The URL cases of the web-platform-tests, for http and https. See `wpt/LICENSE.md`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exec_server.outbound.url import UrlError, parse
from tests.requirements import requirement

DATA = Path(__file__).parent / "wpt"


def cases(name: str) -> list[tuple]:
    return [tuple(case) for case in json.loads((DATA / name).read_text())]


@requirement("http/url:whatwg")
@pytest.mark.parametrize(("text", "base", "expected"), cases("urltestdata.json"), ids=ascii)
def test_a_url_of_the_web_platform_tests_is_read_as_expected(text, base, expected):
    seen_from = parse(base) if base is not None else None
    if expected is None or not expected.startswith(("http:", "https:")):
        # The reason is not compared: our parser refuses other schemes before their host.
        with pytest.raises(UrlError):
            parse(text, base=seen_from)
    else:
        assert str(parse(text, base=seen_from)) == expected.partition("#")[0]


@requirement("http/url:whatwg")
@pytest.mark.parametrize(("name", "expected"), cases("toascii.json"), ids=ascii)
def test_a_host_name_of_the_web_platform_tests_becomes_ascii(name, expected):
    if expected is None:
        with pytest.raises(UrlError):
            parse(f"http://{name}/x")
    else:
        assert parse(f"http://{name}/x").host == expected
