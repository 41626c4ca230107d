"""Durations and rates, as people write them."""

from __future__ import annotations

import pytest

from exec_server.access.quantities import read_duration, read_rate


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
    ("read", "text"),
    [
        *((read_duration, text) for text in ("", "x", "-1", "1w", "1e3", "1 h", "inf", "9" * 30)),
        *((read_rate, text) for text in ("", "0", "0/s", "20/d", "20/", "/s", "x/s", "1G/s")),
    ],
)
def test_what_cannot_be_understood_is_refused(read, text):
    with pytest.raises(ValueError):
        read(text)
