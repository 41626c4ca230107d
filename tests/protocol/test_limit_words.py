"""Limits as people write them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exec_server.protocol.limit_words import (
    LIMIT_NAMES,
    WrongLimit,
    as_limits,
    limits_in,
    parse_limits,
    shown_limit,
)
from exec_server.protocol.resources import ResourceLimits
from tests.requirements import requirement


@requirement("limits:words")
@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("memory=2G", "memory", 2 << 30),
        ("memory=1.5K", "memory", 1536),
        ("memory=10MiB", "memory", 10 << 20),
        ("outputBytes=64k", "outputBytes", 64 << 10),
        ("output-bytes=7", "outputBytes", 7),
        ("disk=1T", "disk", 1 << 40),
        ("pids=200", "pids", 200),
        ("cpuRate=.5", "cpuRate", 0.5),
        ("cpu_seconds=2m", "cpuSeconds", 120.0),
        ("wall=1.5h", "wall", 5400.0),
        ("openFiles=16", "openFiles", 16),
    ],
)
def test_units(text, name, value):
    assert limits_in(parse_limits([text])) == {name: value}


@requirement("limits:words")
def test_several_limits_in_one_word_and_the_last_value_counts():
    limits = parse_limits(["memory=1G,pids=5", "require", "pids=6"])
    assert limits == ResourceLimits(memory=1 << 30, pids=6, require=True)


@requirement("limits:words")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mem=1G", "unknown limit 'mem': the limits are memory, pids, cpuRate"),
        ("", "unknown limit ''"),
        ("memory", "expected `memory=` with a size such as 500M or 2G"),
        ("memory=", "with a size"),
        ("memory=2X", "with a size"),
        ("memory=-1", "with a size"),
        ("memory=0", "`memory` has to be more than 0"),
        ("memory=0.1", "`memory` has to be more than 0"),
        ("pids=5M", "with a number of processes"),
        ("wall=5G", "with a time such as 30s"),
        ("wall=0", "more than 0"),
        ("cpuRate=1e3", "with a number of cores"),
        ("pids=1.5", "`pids` has to be a whole number"),
        ("require=yes", "'require=yes' is not a limit: `require` takes no value"),
    ],
)
def test_a_wrong_limit_says_what_is_expected(text, said):
    with pytest.raises(WrongLimit, match=said):
        parse_limits([text])


@given(st.text())
def test_any_text_is_a_limit_or_wrong(text):
    try:
        parse_limits([text])
    except WrongLimit as exc:
        assert str(exc)


@given(st.sampled_from(LIMIT_NAMES), st.integers(1, 10**14))
@example("memory", 1_382_236_160)
def test_what_is_shown_can_be_read_again(name, value):
    if name in ("wall", "cpuSeconds"):
        value = value % 1_000_000_000 or 1
    assert limits_in(parse_limits([f"{name}={shown_limit(name, value)}"])) == {name: value}


@requirement("limits:words")
def test_a_mapping_may_have_numbers_and_texts():
    found = as_limits({"memory": "2G", "cpu_rate": 0.5, "pids": 3, "require": True})
    assert found == ResourceLimits(memory=2 << 30, cpu_rate=0.5, pids=3, require=True)
    assert as_limits(None) is None
    assert as_limits(found) is found


@requirement("limits:words")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"mem": 1}, WrongLimit),
        ({"memory": 0}, WrongLimit),
        ({"memory": 1.5}, WrongLimit),
        ({"memory": []}, WrongLimit),
        ({"wall": float("inf")}, WrongLimit),
        ({"cpuRate": float("nan")}, WrongLimit),
        ("memory=2G", TypeError),
        (5, TypeError),
    ],
)
def test_a_wrong_value_is_an_error_before_anything_is_sent(value, kind):
    with pytest.raises(kind):
        as_limits(value)
