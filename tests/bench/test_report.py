"""The benchmark's arithmetic and its pictures, on figures made up here."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest

from bench.catalogue import GROUPS, ORDINARY, PINNED, QUICK, digits
from bench.chart import Axis, axis_of, blocks, chart
from bench.options import parse
from bench.report import BEGIN, END, markdown, replace_generated, terminal_table
from bench.results import Results, Series, compare, find, median
from bench.workloads import WORKLOADS

SVG = "{http://www.w3.org/2000/svg}"
ROWS = {(row.workload, row.metric): row for group in GROUPS for row in group.rows}


def make_results(**figures: Series) -> Results:
    """Results of spawn_true and pipe_zero; *figures* are those of ours, the rest is given."""
    results = Results(
        baseline="reference",
        subject="ours",
        servers={"reference": "codex-cli 0.166.0", "ours": ""},
        command="make bench",
        rounds=3,
        scale=1.0,
        machine={"Processor": "some, 2 cores"},
        loads=[0.5, 1.5, 1.0],
    )
    p50: dict[str, Series] = {
        "reference": [0.05, 0.06, 0.04],
        "ours": figures.get("p50", [0.001, 0.002, 0.001]),
    }
    rate: dict[str, Series] = {
        "reference": [2e8, 2e8, 2e8],
        "ours": figures.get("rate", [6e8, 7e8, 9e8]),
    }
    results.sections = {
        ORDINARY: {"spawn_true": {"p50": p50}, "pipe_zero": {"rate": rate}},
        QUICK: {"spawn_true": {"p50": p50}},
    }
    return results


def test_less_time_is_better() -> None:
    found = compare([4.0, 4.0], [1.0, 2.0], higher_is_better=False)
    assert found is not None
    assert found.ratio == pytest.approx(4 / 1.5)
    assert (found.lowest, found.highest) == (2.0, 4.0)


def test_a_higher_rate_is_better() -> None:
    found = compare([1.0, 2.0], [4.0, 4.0], higher_is_better=True)
    assert found is not None
    assert found.ratio == pytest.approx(4 / 1.5)
    assert (found.lowest, found.highest) == (2.0, 4.0)


def test_rounds_are_compared_with_their_own_counterparts() -> None:
    found = compare([1.0, None, 3.0], [None, 5.0, 6.0], higher_is_better=True)
    assert found is not None
    assert (found.lowest, found.highest) == (2.0, 2.0)


def test_nothing_is_compared_where_nothing_can_be() -> None:
    assert compare([], [1.0], higher_is_better=True) is None
    assert compare([None], [1.0], higher_is_better=True) is None
    assert compare([1.0], [1.0], higher_is_better=None) is None


def test_failed_rounds_do_not_count_in_medians() -> None:
    assert median([3.0, None, 1.0, 2.0]) == 2.0
    assert median([None]) is None


def test_figures_of_later_rounds_stay_in_their_place() -> None:
    results = make_results()
    results.add(ORDINARY, "echo", "ours", {"p50": 0.1}, at=2)
    assert results.sections[ORDINARY]["echo"]["p50"]["ours"] == [None, None, 0.1]


def test_a_target_is_met_at_its_very_bound() -> None:
    row = ROWS["pipe_zero", "rate"]
    at_bound = find(make_results(rate=[8e8, 8e8, 8e8]), ORDINARY, row)
    below = find(make_results(rate=[7.9e8, 7.9e8, 7.9e8]), ORDINARY, row)
    assert at_bound is not None and at_bound.is_met is True
    assert below is not None and below.is_met is False


def test_a_target_of_ours_alone_needs_no_reference() -> None:
    results = make_results()
    results.add(ORDINARY, "cold_start", "ours", {"initialized": 0.14}, at=0)
    found = find(results, ORDINARY, ROWS["cold_start", "initialized"])
    assert found is not None
    assert (found.comparison, found.is_met) == (None, True)


def test_each_row_belongs_to_a_workload() -> None:
    assert {workload for workload, _ in ROWS} == WORKLOADS.keys() - {"verify"}


def test_the_markdown_has_a_full_table_for_each_section() -> None:
    text = markdown(make_results())
    assert "Made by `make bench`." in text
    assert "Of 3 targets 2 are met and 1 missed" in text
    assert (
        "| /dev/zero | 200 MB/s | 700 MB/s | 3.50x | 3.00 - 4.50 | at least 4x | missed |" in text
    )
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count(" | ") for line in table} == {6}
    assert text.count("### ") == 2


def test_a_floor_has_a_column_and_a_mark() -> None:
    results = make_results()
    results.servers["floor"] = ""
    results.add(ORDINARY, "spawn_true", "floor", {"p50": 0.0005}, at=0)
    found = find(results, ORDINARY, ROWS["spawn_true", "p50"])
    assert found is not None and found.floor == pytest.approx(100)
    text = markdown(results)
    assert "| reference | ours | floor | ratio |" in text
    assert "| 50.0 ms | 1.00 ms | 500 µs | 50.0x |" in text
    marks = [line for line in chart(results).splitlines() if 'class="floor"' in line]
    # One is in the legend, and two sections have the same figures.
    assert len(marks) == 3
    assert chart(make_results()).count('class="floor"') == 1


def with_floor(name: str, *, rate: float, ours: float) -> Results:
    """Results of /dev/zero, whose target is 4x, where the reference has 200 MB/s."""
    results = make_results(rate=[ours, ours, ours])
    results.servers[name] = ""
    results.add(ORDINARY, "pipe_zero", name, {"rate": rate}, at=0)
    return results


@pytest.mark.parametrize(
    ("name", "words"), [("kernel", "the kernel alone"), ("floor", "the floor")]
)
def test_a_target_that_the_floor_misses_is_beyond_it(name: str, words: str) -> None:
    results = with_floor(name, rate=7e8, ours=6e8)
    found = find(results, ORDINARY, ROWS["pipe_zero", "rate"])
    assert found is not None
    assert (found.is_met, found.beyond) == (False, name)
    assert found.above == pytest.approx(7 / 6)
    text = markdown(results)
    assert "1 missed, 1 of these beyond what a floor reaches:" in text
    assert f"/dev/zero (beyond {words}, which has 3.50x; ours is 1.17x the floor)" in text
    assert f"| 1.17x | at least 4x | missed, beyond {words} |" in text


def test_a_target_between_ours_and_the_floor_is_only_missed() -> None:
    results = with_floor("floor", rate=9e8, ours=6e8)
    found = find(results, ORDINARY, ROWS["pipe_zero", "rate"])
    assert found is not None and (found.is_met, found.beyond) == (False, "")
    text = markdown(results)
    assert "1 missed:" in text
    assert "/dev/zero (ours is 1.50x the floor)" in text


def test_a_target_that_is_met_is_not_beyond_a_floor() -> None:
    """Noise may put a floor behind ours."""
    found = find(with_floor("floor", rate=7e8, ours=9e8), ORDINARY, ROWS["pipe_zero", "rate"])
    assert found is not None and (found.is_met, found.beyond) == (True, "")


def test_the_kernel_is_named_before_the_floor_of_our_libraries() -> None:
    results = with_floor("floor", rate=6.5e8, ours=6e8)
    results.servers["kernel"] = ""
    results.add(ORDINARY, "pipe_zero", "kernel", {"rate": 7.5e8}, at=0)
    found = find(results, ORDINARY, ROWS["pipe_zero", "rate"])
    assert found is not None and found.beyond == "kernel"
    # The nearer floor is what ours is compared with.
    assert found.above == pytest.approx(6.5 / 6) and found.floor == pytest.approx(3.25)


def test_a_figure_of_ours_may_be_beyond_a_floor_without_a_reference() -> None:
    results = make_results()
    results.servers["floor"] = ""
    results.add(ORDINARY, "cold_start", "ours", {"initialized": 0.20}, at=0)
    results.add(ORDINARY, "cold_start", "floor", {"initialized": 0.16}, at=0)
    found = find(results, ORDINARY, ROWS["cold_start", "initialized"])
    assert found is not None and (found.is_met, found.beyond) == (False, "floor")


@pytest.mark.parametrize(("floor", "is_met"), [(0.9, True), (0.87, True), (0.86, False)])
def test_a_floor_within_reach_is_as_good_as_the_ratio(floor: float, is_met: bool) -> None:
    results = make_results()
    results.servers["floor"] = ""
    for name, figure in (("reference", 1.1), ("ours", 1.0), ("floor", floor)):
        results.add(PINNED, "rpc", name, {"p50": figure}, at=0)
    found = find(results, PINNED, ROWS["rpc", "p50"])
    assert found is not None and (found.is_met, found.beyond) == (is_met, "")
    assert "at least 1.3x, or the floor within 15 %" in terminal_table(results)


def test_a_floor_is_one_column_of_several_servers() -> None:
    floors = [command for command in parse(["--server", "floor"]).commands]
    assert {command.name for command in floors} == {"floor"}
    taken = [name for command in floors for name in command.workloads or ()]
    assert len(taken) == len(set(taken)) and set(taken) <= WORKLOADS.keys()


def test_the_generated_part_is_replaced_and_nothing_else() -> None:
    document = f"head\n{BEGIN}\nold\n{END}\ntail\n"
    once = replace_generated(document, "new")
    assert once == f"head\n{BEGIN}\n\nnew\n\n{END}\ntail\n"
    assert replace_generated(once, "new") == once
    with pytest.raises(ValueError, match="no part between"):
        replace_generated("head", "new")


def test_the_terminal_table_names_failures() -> None:
    results = make_results()
    results.errors.append("ordinary, echo, ours: CallFailed: gone")
    text = terminal_table(results)
    assert "3.50x" in text
    assert "FAILED: ordinary, echo, ours" in text


def test_the_chart_is_well_formed_and_has_a_bar_for_each_row() -> None:
    results = make_results(p50=[0.2, 0.2, 0.2])
    root = ElementTree.fromstring(chart(results))
    kinds = [rect.get("class") for rect in root.iter(f"{SVG}rect")]
    assert sorted(filter(None, kinds)) == ["back", "better", "worse", "worse"]
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert "3.50x" in words and "0.25x" in words and "1x" in words


def test_an_empty_chart_is_still_a_picture() -> None:
    results = make_results()
    results.sections = {}
    ElementTree.fromstring(chart(results))


def test_the_axis_holds_every_bar_and_grows_with_the_ratio() -> None:
    axis = axis_of(blocks(make_results()))
    assert axis.low < 1 < axis.high
    assert 1 in axis.ticks() and 10 in axis.ticks()
    places = [Axis(0.1, 100).x(ratio) for ratio in (0.1, 1.0, 10.0, 100.0)]
    assert places == sorted(places)
    assert places[1] - places[0] == pytest.approx(places[3] - places[2])


def test_results_survive_their_json() -> None:
    results = make_results(p50=[None, 0.001])
    assert msgspec.json.decode(msgspec.json.encode(results), type=Results) == results


@pytest.mark.parametrize(
    ("number", "words"),
    [(0.094, "0.09"), (4.357, "4.36"), (12.04, "12.0"), (99.96, "100"), (61630.0, "61,630")],
)
def test_three_digits_matter(number: float, words: str) -> None:
    assert digits(number) == words


def test_a_partial_run_is_not_published(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--write", "--workloads", "rpc"])
    assert "--write needs a whole run" in capsys.readouterr().err


def test_the_command_to_repeat_a_run_names_no_path() -> None:
    options = parse(["--server", "ours", "--rounds", "2", "--json", "/somewhere/else"])
    assert options.command == "make bench ARGS='--rounds 2 --write'"
    assert [command.name for command in options.commands] == ["ours"]
