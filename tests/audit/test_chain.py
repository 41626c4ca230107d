"""The chain of an audit log: every way to damage it is found."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_server.audit.chain import TORN, ChainCheck, Link, check, linked, placed, torn_detail
from exec_server.audit.event import AuditEvent
from tests.requirements import requirement


def chain(count: int, end: Link | None = None) -> list[bytes]:
    lines, end = [], end or Link()
    for number in range(count):
        line, end = linked(msgspec.json.encode(AuditEvent(at=1.5, name=f"event {number}")), end)
        lines.append(line)
    return lines


def checked(lines: list[bytes], wanted: Link | None = None) -> ChainCheck:
    return check(placed("f", lines), wanted)


def faults(lines: list[bytes]) -> list[str]:
    return [str(fault) for fault in checked(lines).faults]


def test_a_line_is_plain_json_with_its_number_and_hashes():
    one, two = map(json.loads, chain(2))
    assert (one["n"], one["prev"], one["name"], one["at"]) == (1, "", "event 0", 1.5)
    assert (two["n"], two["prev"]) == (2, one["hash"])
    assert list(two)[:2] == ["n", "prev"] and list(two)[-1] == "hash"


def test_a_whole_chain_has_no_faults_wherever_it_begins():
    lines = chain(9)
    done = checked(lines[3:])
    assert not done.faults
    assert done.remarks == ["the log begins with line 4; older files are not there"]
    assert done.end.number == 9


@requirement("audit/chain:faults")
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda lines: lines.pop(3), ["f:4: line 4 is missing before line 5"]),
        (lambda lines: lines.__delitem__(slice(3, 5)), ["f:4: lines 4 to 5 are missing before "]),
        (
            lambda lines: lines.__setitem__(3, lines[3].replace(b"event", b"EVENT")),
            ["f:4: line 4 was changed"],
        ),
        (lambda lines: lines.__setitem__(6, lines[6] + b" "), ["f:7: line 7 was changed"]),
        (lambda lines: lines.insert(3, lines[3]), ["f:5: line 4 is not in its place, or is there"]),
        (
            lambda lines: lines.insert(5, lines.pop(3)),
            ["f:4: line 4 is missing before line 5", "f:6: line 4 is not in its place"],
        ),
        (lambda lines: lines.insert(3, b'{"at":1,"name":"x"}'), ["f:4: this line has no number"]),
        (lambda lines: lines.insert(3, b"x"), ["f:4: this is no line of an audit log"]),
        (lambda lines: lines.__setitem__(6, lines[6][:-9]), ["f:7: the last line is cut after"]),
        (lambda lines: lines.extend(chain(1)), ["f:8: a new chain begins here"]),
        # The attacker has made the hash of the changed line anew.
        (
            lambda lines: lines.__setitem__(3, chain(1, Link(3, "0" * 64))[0]),
            ["f:4: line 4 does not follow", "f:5: line 5 does not follow the line 4 before it"],
        ),
    ],
)
def test_damage_is_found_and_named(damage, told):
    lines = chain(7)
    damage(lines)
    found = faults(lines)
    assert len(found) == len(told), found
    for text, beginning in zip(found, told, strict=True):
        assert text.startswith(beginning)


@requirement("audit/chain:faults")
@given(st.data())
def test_any_change_of_a_byte_is_found(data):
    lines = chain(5)
    row = data.draw(st.integers(0, 4))
    place = data.draw(st.integers(0, len(lines[row]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != lines[row][place]))
    lines[row] = lines[row][:place] + bytes([other]) + lines[row][place + 1 :]
    assert faults(lines)


@requirement("audit/chain:faults")
@given(st.permutations(range(6)).filter(lambda order: order != sorted(order)))
def test_any_other_order_is_found(order):
    lines = chain(6)
    assert faults([lines[number] for number in order])


@requirement("audit/chain:anchor")
def test_only_an_anchor_finds_lines_that_are_missing_at_the_end():
    lines = chain(5)
    last = json.loads(lines[-1])
    anchor = Link(last["n"], last["hash"])
    whole, cut = checked(lines, anchor), checked(lines[:3], anchor)
    assert not whole.faults and not cut.faults
    assert whole.has_anchor(anchor) and not cut.has_anchor(anchor)


@requirement("audit/chain:crash")
def test_a_torn_line_that_is_marked_is_no_fault_and_another_one_is():
    lines = chain(3)
    torn = lines.pop()[:40]
    two = json.loads(lines[1])
    mark = AuditEvent(at=1.5, name=TORN, detail=torn_detail(torn))
    after, _ = linked(msgspec.json.encode(mark), Link(2, two["hash"]))
    done = checked([*lines, torn, after])
    assert not done.faults
    assert done.remarks == ["f:3: a line was cut by a crash; line 3 says so"]
    assert faults([*lines, torn + b"x", after])


def test_lines_from_before_the_chain_are_told():
    done = checked([b'{"at":1,"name":"old"}', *chain(2)])
    assert not done.faults
    assert done.remarks == ["1 lines before the chain are not protected"]


@given(st.binary(max_size=200))
def test_any_bytes_can_be_checked(line):
    checked([line, *chain(1), line])
