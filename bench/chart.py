"""The chart: ratios to the reference as bars on a logarithmic axis, in SVG written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from bench.catalogue import ORDINARY, QUICK
from bench.report import findings, ratio_words
from bench.results import Comparison, Finding, Results

_WIDTH = 860
_LABELS = 316
_RIGHT = 64
_TOP = 106
_BOTTOM = 34
_ROW = 19
_GROUP = 30
_BAR = 11

# Its own background, so that it reads the same on a page of any colour.
_STYLE = """
  text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f }
  .title { font-size: 16px; font-weight: 600 }
  .note, .tick { fill: #57606a }
  .group { font-weight: 600 }
  .value { font-weight: 600; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
  .back { fill: #ffffff; stroke: #d0d7de }
  .grid { stroke: #d8dee4 }
  .one { stroke: #24292f; stroke-width: 1.5 }
  .better { fill: #2f81f7 }
  .worse { fill: #d1651f }
  .range { stroke: #24292f; stroke-opacity: .55 }
  .target { stroke: #1a7f37; stroke-width: 2.5 }
  .floor { stroke: #8250df; stroke-width: 2.5; stroke-dasharray: 3 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note, .tick { fill: #9da7b3 }
    .value { stroke: #0d1117 }
    .back { fill: #0d1117; stroke: #30363d }
    .grid { stroke: #262c36 }
    .one { stroke: #e6edf3 }
    .better { fill: #1f6feb }
    .worse { fill: #db6d28 }
    .range { stroke: #e6edf3 }
    .target { stroke: #3fb950 }
    .floor { stroke: #bc8cff }
  }
"""


class Bar(NamedTuple):
    label: str
    comparison: Comparison
    target: float | None
    floor: float | None


class Block(NamedTuple):
    title: str
    bars: list[Bar]


def blocks(results: Results) -> list[Block]:
    """The rows to draw, in groups: an ordinary client's first, then the quick one's."""
    drawn = []
    for section, suffix in ((ORDINARY, ""), (QUICK, " (quick acks)")):
        for group, rows in findings(results, section):
            bars = [bar for found in rows if (bar := _bar(found))]
            if bars:
                drawn.append(Block(group.title + suffix, bars))
    return drawn


def _bar(found: Finding) -> Bar | None:
    if found.comparison is None or not found.row.is_charted:
        return None
    return Bar(found.row.label, found.comparison, found.target and found.target.ratio, found.floor)


class Axis(NamedTuple):
    """A logarithmic axis between two ratios."""

    low: float
    high: float

    def x(self, ratio: float) -> float:
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return _LABELS + min(1.0, max(0.0, share)) * (_WIDTH - _LABELS - _RIGHT)

    def ticks(self) -> list[float]:
        steps = (step * 10.0**power for power in range(-4, 6) for step in (1, 2, 5))
        return [step for step in steps if self.low <= step <= self.high]


def axis_of(drawn: list[Block]) -> Axis:
    """An axis with 1x on it and room for every bar; the ends of ranges may be cut."""
    bars = [bar for block in drawn for bar in block.bars]
    ratios = [bar.comparison.ratio for bar in bars] + [bar.floor for bar in bars if bar.floor]
    return Axis(min([0.5, *ratios]) * 0.8, max([10.0, *ratios]) * 1.2)


def chart(results: Results) -> str:
    """The whole picture as the text of an SVG file."""
    drawn = blocks(results)
    axis = axis_of(drawn)
    rows = sum(_GROUP + _ROW * len(block.bars) for block in drawn)
    bottom = _TOP + rows
    height = bottom + _BOTTOM
    body = [*_head(results), *_grid(axis, bottom), *_rows(drawn, axis)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}" role="img">',
            "<title>Speed and memory against the reference</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="back" x=".5" y=".5" width="{_WIDTH - 1}" height="{height - 1}" rx="6"/>',
            *body,
            "</svg>\n",
        ]
    )


def _head(results: Results) -> Iterator[str]:
    yield _text(20, 30, "How many times better than the reference", "title")
    rounds = "one round" if results.rounds == 1 else f"medians of {results.rounds} rounds"
    note = f"{rounds}; right of 1x is better, whatever the unit; the axis is logarithmic"
    yield _text(20, 50, note, "note")
    yield _line(20, 66, 36, 66, "range")
    yield _text(42, 70, "worst to best single round", "note")
    yield _line(216, 60, 216, 72, "target")
    yield _text(224, 70, "target", "note")
    yield _line(280, 60, 280, 72, "floor")
    yield _text(288, 70, "floor: the kernel or our libraries alone", "note")


def _grid(axis: Axis, bottom: float) -> Iterator[str]:
    for tick in axis.ticks():
        x = axis.x(tick)
        yield _line(x, _TOP, x, bottom + 6, "one" if tick == 1 else "grid")
        yield _text(x, _TOP - 6, f"{tick:g}x", "tick", "middle")
        yield _text(x, bottom + 22, f"{tick:g}x", "tick", "middle")


def _rows(drawn: list[Block], axis: Axis) -> Iterator[str]:
    y = float(_TOP)
    for block in drawn:
        y += _GROUP
        yield _text(20, y - 7, block.title, "group")
        for bar in block.bars:
            yield from _draw(bar, axis, y)
            y += _ROW


def _draw(bar: Bar, axis: Axis, y: float) -> Iterator[str]:
    ratio, lowest, highest = bar.comparison
    one, end = axis.x(1), axis.x(ratio)
    middle = y + _ROW / 2
    yield _text(_LABELS - 10, middle + 4, bar.label, "label", "end")
    kind = "better" if ratio >= 1 else "worse"
    yield (
        f'<rect class="{kind}" x="{min(one, end):.1f}" y="{middle - _BAR / 2:.1f}" '
        f'width="{max(1.0, abs(end - one)):.1f}" height="{_BAR}" rx="1.5"/>'
    )
    yield _line(axis.x(lowest), middle, axis.x(highest), middle, "range")
    if bar.target is not None:
        x = axis.x(bar.target)
        yield _line(x, middle - _BAR / 2 - 2, x, middle + _BAR / 2 + 2, "target")
    if bar.floor is not None:
        x = axis.x(bar.floor)
        yield _line(x, middle - _BAR / 2 - 2, x, middle + _BAR / 2 + 2, "floor")
    marks = (bar.target or ratio, bar.floor or ratio)
    right = max(one, end, axis.x(highest), *map(axis.x, marks))
    yield _text(right + 7, middle + 4, ratio_words(ratio), "value")


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    place = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
