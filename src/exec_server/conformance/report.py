"""Results as text, JSON, JUnit or HTML."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from exec_server.conformance.check import CheckResult, Verdict

_MARKS: dict[Verdict, str] = {
    "passed": "ok",
    "failed": "FAILED",
    "deviation": "differs",
    "skipped": "skipped",
}


def line(result: CheckResult) -> str:
    """One result as a line for people."""
    text = f"{_MARKS[result.verdict]:8} {result.check.id:26} {result.check.requirement}"
    return f"{text}\n         {_in_a_line(result.seen)}" if result.seen else text


def last_line(results: Sequence[CheckResult], target: str, version: str) -> str:
    """All results in one line for people."""
    return f"{target} ({_in_a_line(version) or 'unknown version'}): {summary(results)}"


def summary(results: Sequence[CheckResult]) -> str:
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _MARKS if counts[verdict])


def as_json(results: Sequence[CheckResult], target: str, version: str) -> str:
    found = [
        {
            "id": result.check.id,
            "suite": result.check.suite,
            "requirement": result.check.requirement,
            "verdict": result.verdict,
            "seen": result.seen,
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    return json.dumps({"server": target, "version": version, "checks": found}, indent=1)


def as_junit(results: Sequence[CheckResult]) -> str:
    counts = Counter(result.verdict for result in results)
    told = {
        "name": "exec-server conformance",
        "tests": str(len(results)),
        "failures": str(counts["failed"]),
        "errors": "0",
        "skipped": str(counts["skipped"] + counts["deviation"]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    root = ElementTree.Element("testsuites", told)
    suite = ElementTree.SubElement(root, "testsuite", told)
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=result.check.suite,
            name=result.check.id,
            time=f"{result.seconds:.3f}",
        )
        if result.verdict == "failed":
            ElementTree.SubElement(case, "failure", message=_printable(result.seen))
        elif result.verdict != "passed":
            ElementTree.SubElement(case, "skipped", message=_printable(result.seen))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def as_html(results: Sequence[CheckResult], target: str, version: str) -> str:
    rows = "\n".join(
        f'<tr class="{result.verdict}"><td>{result.check.id}</td><td>{_MARKS[result.verdict]}</td>'
        f"<td>{html.escape(result.check.requirement)}</td><td>{html.escape(_printable(result.seen))}</td></tr>"
        for result in results
    )
    title = html.escape(_printable(f"Conformance of {target} ({version or 'unknown version'})"))
    heads = "".join(
        f'<th scope="col">{name}</th>' for name in ("check", "result", "requirement", "seen")
    )
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em }}
td, th {{ padding: .2em .8em; vertical-align: top; text-align: left }}
.failed {{ background: #fdd }} .deviation {{ background: #ffd }} .skipped {{ color: #666 }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary(results)}</p>
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</body>
</html>"""


def _in_a_line(text: str) -> str:
    """What a server has said, without what would control a terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _printable(text: str) -> str:
    """XML has no way to write most control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
