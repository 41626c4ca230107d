"""Durations, rates, sizes and limits, as people write them."""

from __future__ import annotations

import pytest

from exec_server.access.quantities import (
    limits_of,
    read_duration,
    read_limit,
    read_rate,
    read_size,
)
from exec_server.protocol.resources import ResourceLimits


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5h", 5400), ("30d", 2_592_000), ("2m", 120), (".5s", 0.5)]
)
def test_durations(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "rate"), [("20/s", 20), ("20", 20), ("90/m", 1.5), ("36/h", 0.01)]
)
def test_rates(text, rate):
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("2G", 2 << 30), ("1.5k", 1536), ("1MiB", 1 << 20), ("3mb", 3 << 20)],
)
def test_sizes(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((read_duration, text) for text in ("", "x", "-1", "1w", "1e3", "1 h", "inf", "9" * 30)),
        *((read_rate, text) for text in ("", "0", "0/s", "20/d", "20/", "/s", "x/s", "1G/s")),
        *((read_size, text) for text in ("", "G", "1X", "-1", "1 G")),
        *(
            (read_limit, text)
            for text in ("", "memory", "memory=", "memory=0", "speed=1", "pids=1.5")
        ),
        *((read_limit, text) for text in ("pids=2G", "=1", "memory=x")),
    ],
)
def test_what_cannot_be_understood_is_refused(read, text):
    with pytest.raises(ValueError):
        read(text)


def test_limits():
    found = [read_limit(text) for text in ("memory=2G", "cpu-rate=0.5", "wall=1h", "open-files=64")]
    assert limits_of(found) == ResourceLimits(
        memory=2 << 30, cpu_rate=0.5, wall=3600.0, open_files=64
    )
    assert limits_of([]) is None
