"""Facts on standard output, a page at a time."""

from __future__ import annotations

import json
import unicodedata

import pytest

from exec_server.cli.output_format import printable_json
from exec_server.cli.tables import JsonListPrinter, TablePrinter, print_json, print_table


def test_columns_grow_with_the_pages(capsys):
    table = TablePrinter(["A", "B"])
    table.add([["1", "2"]])
    table.add([])
    table.add([["wide", "x\x1b"], ["", "y"]])
    assert capsys.readouterr().out == "A  B\n1  2\nwide  x?\n      y\n"
    print_table(["A", "B"], [])
    assert capsys.readouterr().out == "A  B\n"


def test_the_last_column_is_cut_to_the_width_of_the_terminal(capsys):
    rows = [["1", "a long command that goes on"], ["2", "a short one"]]
    print_table(["ID", "COMMAND"], rows, width=20)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["ID  COMMAND", "1   a long command …", "2   a short one"]
    # There is no use in a column of a few letters.
    print_table(["ID", "COMMAND"], rows, width=11)
    assert "a long command that goes on" in capsys.readouterr().out


@pytest.mark.parametrize(
    "pages", [[], [[]], [[1]], [[], [{"a": [1, {}]}, "\u2028\\n"], [], [None]]]
)
def test_a_list_in_pages_is_printed_like_one_that_is_whole(pages, capsys):
    values = JsonListPrinter()
    for page in pages:
        values.add(page)
    values.end()
    printed = capsys.readouterr().out
    whole = [value for page in pages for value in page]
    assert json.loads(printed) == whole
    print_json(whole)
    assert printed == capsys.readouterr().out


def test_json_has_no_character_that_a_terminal_obeys(capsys):
    controls = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)]))
    value = {f"name {controls}": [f"é {controls} \U0001f600"]}
    values = JsonListPrinter()
    values.add([value])
    values.end()
    print_json(value)
    print(printable_json(value))
    printed = capsys.readouterr().out
    assert all(each == "\n" or unicodedata.category(each) != "Cc" for each in printed)
    assert printed.count("é") == 3
    decoder = json.JSONDecoder()
    assert decoder.raw_decode(printed)[0] == [value]
    assert json.loads(printed.splitlines()[-1]) == value
