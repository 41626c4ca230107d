"""Metrics, and whether another parser can read them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from exec_server.hub.observe.metrics import Requests, exposition
from exec_server.prometheus import Metric
from exec_server.version import VERSION
from tests.requirements import requirement

PREFIX = "exec_server_registry_"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ([-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|Inf)|NaN)")
UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
# A label with the special characters of the format.
ODD = st.text('\\"\n\r,={} n#é\u2028')


class Family:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}


def parse(text: str) -> dict[str, Family]:
    """A strict parser of Prometheus' text format 0.0.4."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    lines = iter(text[:-1].split("\n"))
    family = name = None
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert re.fullmatch(NAME, name) and name not in families
            word, kind = next(lines).rsplit(" ", 1)
            assert word == f"# TYPE {name}" and kind in ("counter", "gauge", "histogram")
            family = families[name] = Family(kind)
            continue
        match = SAMPLE.fullmatch(line)
        assert match and family and name, line
        endings = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
        assert match[1] in [name + ending for ending in endings], line
        key = match[1], labels(match[2] or "")
        assert key not in family.samples, line
        family.samples[key] = float(match[3])
    return families


def labels(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    while text:
        match = LABEL.match(text)
        assert match, text
        found.append((match[1], re.sub(r"\\.", lambda m: UNESCAPED[m[0]], match[2])))
        text = text[match.end() :]
    assert len({name for name, _ in found}) == len(found)
    return tuple(found)


@requirement("hub/metrics:format")
async def test_what_a_registry_exposes_is_well_formed(pair):
    await pair.open_harness()
    await pair.visitor.connect("build", "exs_wrong")
    _, secret = await pair.visitor.token("observe")
    found = parse((await pair.visitor.ask("GET", "/metrics", secret)).body)
    info = found[f"{PREFIX}info"]
    assert info.samples == {(f"{PREFIX}info", (("version", VERSION),)): 1}
    durations = found[f"{PREFIX}request_seconds"]
    assert durations.kind == "histogram"
    sockets = [
        (labels[1][1], value)
        for (name, labels), value in durations.samples.items()
        if name.endswith("_bucket") and labels[0] == ("operation", "rendezvous")
    ]
    counts = [value for _, value in sockets]
    # Open sockets count too: they were answered when they were opened.
    assert counts == sorted(counts) and sockets[-1] == ("+Inf", 2)
    assert found[f"{PREFIX}store_failures_total"].samples.popitem()[1] == 0


@requirement("hub/metrics:format")
@given(value=ODD, help=ODD, number=st.integers(0, 2**53))
def test_labels_and_numbers_survive_the_format(value, help, number):
    family = Metric("odd_total", "counter", help, parts={(("a", value), ("b", "")): number})
    text = exposition([family, Metric("plain", "gauge", "x", number + 0.25)], Requests())
    found = parse(text)
    assert found[f"{PREFIX}odd_total"].samples == {
        (f"{PREFIX}odd_total", (("a", value), ("b", ""))): number
    }
    assert found[f"{PREFIX}plain"].samples[f"{PREFIX}plain", ()] == number + 0.25


@requirement("hub/metrics:format")
def test_a_duration_on_a_bound_is_below_it():
    requests = Requests()
    for seconds in (0.005, 0.0051, 10.0, 11.0):
        requests.answered("connect", 200, seconds=seconds)
    buckets = parse(exposition([], requests))[f"{PREFIX}request_seconds"].samples
    name = f"{PREFIX}request_seconds"

    def bucket(bound):
        return buckets[f"{name}_bucket", (("operation", "connect"), ("le", bound))]

    assert [bucket("0.005"), bucket("0.01"), bucket("10"), bucket("+Inf")] == [1, 2, 3, 4]
    assert buckets[f"{name}_sum", (("operation", "connect"),)] == 21.0101
