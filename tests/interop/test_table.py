"""The page is made of results alone, and its check notices what changed."""

from __future__ import annotations

from tests.conformance.table import END, with_part
from tests.interop.columns import PINNED, SKEWED, TODAY, Column, Scenario
from tests.interop.table import (
    CONFORMANCE,
    FAILS,
    NOT_RUN,
    WORKS,
    Row,
    agrees,
    conformance_part,
    render,
)
from tests.requirements import requirement

OURS = Column("ours", "direct")
REFERENCE = Column("reference", "direct")


def page(**cells: str) -> str:
    found = {REFERENCE: cells.get("reference", WORKS), OURS: cells.get("ours", WORKS)}
    return render([Row("a thing", found, {REFERENCE: "It cannot."})])


@requirement("interop:table")
def test_a_known_failure_is_explained_and_a_success_is_not():
    assert "| a thing | **no**[^1] |" in page(reference=FAILS)
    assert "[^1]: It cannot." in page(reference=FAILS)
    assert "It cannot." not in page()


@requirement("interop:table")
def test_only_what_was_run_is_compared(tmp_path):
    path = tmp_path / "page.md"
    assert not agrees(page(), path)
    path.write_text(page())
    assert agrees(page(), path)
    assert agrees(page(ours=NOT_RUN), path)
    assert not agrees(page(ours=FAILS), path)
    assert not agrees(page() + "| more |\n", path)


@requirement("kit:table")
def test_neither_half_of_the_page_changes_the_other(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(with_part(page(), "one half"))
    assert agrees(page(), path)
    assert not agrees(page(ours=FAILS), path)
    path.write_text(with_part(path.read_text(), "other half"))
    text = path.read_text()
    assert text.count(CONFORMANCE) == text.count(END) == 1
    assert "one half" not in text
    # `make interop` writes its half anew.
    path.write_text(page(ours=FAILS) + conformance_part(path))
    assert agrees(page(ours=FAILS), path)
    assert "other half" in path.read_text()


def test_a_scenario_runs_where_it_makes_sense_and_knows_why_it_fails():
    row = Scenario("it", ("direct",), True, {"reference": "no", "0.120.0": "too old"})
    assert row.columns() == [*(c for c in TODAY if c.way == "direct"), *SKEWED]
    assert row.reason(REFERENCE) == "no"
    assert row.reason(OURS) is None
    assert row.reason(SKEWED[0]) == "too old"
    assert PINNED not in {column.client for column in SKEWED}
