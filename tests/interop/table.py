"""docs/compatibility.md: the outcomes of the scenarios, written or compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.columns import COLUMNS, PINNED, SKEWED, TODAY, Column, Scenario
from tests.support.servers import ROOT

PATH = ROOT / "docs" / "compatibility.md"
# Begins the part of the page that is not made here.
CONFORMANCE = "<!-- conformance, made by `make conformance-table` -->"
WORKS, FAILS, NOT_RUN, NOT_APPLICABLE = "yes", "**no**", "not run", ""

HEAD = """\
# Codex on this server

Made by `make interop`; do not edit. Each row is a scenario: the unmodified Codex CLI runs against a
server, a scripted model asks for tools, and the scenario checks the answers that the model gets and
the files that are left on disk. The same scenario, with the same expectations, runs against Codex's
own `codex exec-server` ("reference") and against this one ("ours").

- *direct*: a WebSocket; *stdio*: a program that Codex starts; *relay*: through our
  registry, encrypted from end to end.
- `yes`: everything was as expected. An empty cell: the scenario has no meaning there (a connection
  that is lost over stdio is final) or cannot be run (no single message can be picked out of the
  relay).
"""
OLDER_NOTE = """\
The first is the oldest release on npm that has an `exec-server`. Up to 0.135.0, Codex wraps
sandboxed commands in a program of its own, named by its path on the client; that works if both are
one machine, as here.
"""


class Row(NamedTuple):
    title: str
    cells: Mapping[Column, str]
    notes: Mapping[Column, str]


def render(rows: list[Row]) -> str:
    """The whole page."""
    skewed = [row for row in rows if any(column in row.cells for column in SKEWED)]
    notes: list[str] = []
    today = _table(rows, TODAY, [column.title for column in TODAY], notes)
    pinned = Column("ours", "direct")
    columns = [*SKEWED, pinned]
    older = _table(skewed, columns, [column.client for column in columns], notes)
    parts = [HEAD, f"## Codex {PINNED}\n", today, "\n## Other releases of Codex, ours, direct\n"]
    parts += [OLDER_NOTE, older]
    parts += ["\n", *(f"[^{n}]: {text}\n" for n, text in enumerate(notes, 1))] if notes else []
    return "\n".join(part.rstrip("\n") if part == "\n" else part for part in parts)


def _table(rows: list[Row], columns: list[Column], titles: list[str], notes: list[str]) -> str:
    lines = [_line(["scenario", *titles]), _line(["---"] * (len(columns) + 1))]
    for row in rows:
        cells = [_cell(row, column, notes) for column in columns]
        lines.append(_line([row.title, *cells]))
    return "\n".join(lines) + "\n"


def _cell(row: Row, column: Column, notes: list[str]) -> str:
    cell = row.cells.get(column, NOT_APPLICABLE)
    note = row.notes.get(column)
    if note is None or cell != FAILS:
        return cell
    if note not in notes:
        notes.append(note)
    return f"{cell}[^{notes.index(note) + 1}]"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


class Results:
    """Gathers what the tests report, also from other processes, and settles the page at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._mode = config.getoption("--compatibility", None)
        self._scenarios: dict[str, Scenario] = {}
        self._outcomes: dict[tuple[str, str], str] = {}

    @property
    def _is_worker(self) -> bool:
        return hasattr(self._config, "workerinput")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item):
        outcome = yield
        mark = item.get_closest_marker("scenario")
        if mark is not None:
            column = item.callspec.params["column"]  # type: ignore[attr-defined]
            report = outcome.get_result()
            report.scenario = [*mark.args[0], column.title]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        given = getattr(report, "scenario", None)
        if given is None:
            return
        title, ways, is_old, fails, column = given
        self._scenarios[title] = Scenario(title, tuple(ways), is_old, fails)
        key = (title, column)
        if hasattr(report, "wasxfail") or report.failed:
            self._outcomes[key] = FAILS
        elif report.skipped:
            self._outcomes.setdefault(key, NOT_RUN)
        elif report.when == "call":
            self._outcomes[key] = WORKS

    def rows(self) -> list[Row]:
        found = []
        for title, scenario in self._scenarios.items():
            cells = {
                column: self._outcomes.get((title, column.title), NOT_RUN)
                for column in COLUMNS
                if column in scenario.columns()
            }
            reasons = {column: scenario.reason(column) for column in cells}
            notes = {column: text for column, text in reasons.items() if text is not None}
            found.append(Row(title, cells, notes))
        return sorted(found, key=lambda row: row.title)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._mode is None or self._is_worker:
            return
        rows = self.rows()
        if not any(cell != NOT_RUN for row in rows for cell in row.cells.values()):
            return
        made = render(rows)
        if self._mode == "write":
            PATH.write_text(made + conformance_part(PATH), encoding="utf-8")
        elif not agrees(made, PATH):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.stale = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if getattr(self, "stale", False):
            terminalreporter.write_line(f"{PATH.name} is out of date: run `make interop`", red=True)


def conformance_part(path: Path) -> str:
    """The end of the page, which `make conformance-table` writes."""
    if not path.exists():
        return ""
    _, mark, part = path.read_text(encoding="utf-8").partition(CONFORMANCE)
    return f"\n{mark}{part}" if mark else ""


def agrees(made: str, path: Path) -> bool:
    """Whether *path* says what was *made*, but for cells that could not be run here."""
    if not path.exists():
        return False
    text = path.read_text(encoding="utf-8").removesuffix(conformance_part(path))
    said, lines = text.splitlines(), made.splitlines()
    return len(said) == len(lines) and all(map(_same, said, lines))


def _same(said: str, made: str) -> bool:
    if NOT_RUN not in made:
        return said == made
    pairs = zip(said.split("|"), made.split("|"), strict=False)
    return said.count("|") == made.count("|") and all(
        new.strip() == NOT_RUN or old == new for old, new in pairs
    )
