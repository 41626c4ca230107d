"""`pytest --traffic`: all that our clients and servers send in tests is compared with the schemas.

Answers must have the shape of their method, notifications and requests that of their parameters,
and an error must be one that the method is said to give. What differs is listed at the end, and
the run has failed then.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from exec_server.protocol.base64 import encode_base64
from exec_server.protocol.method import Encoded, Event, Method
from exec_server.rpc import boundary
from exec_server.rpc.peer import Peer
from exec_server.schema.catalog import declared
from exec_server.schema.openrpc import openrpc
from tests.support.schema_checks import problems_of_params, problems_of_result
from tests.support.servers import ROOT

_FOLDER = ROOT / "build" / "traffic"
# Longer messages have the same shapes, and take long to compare.
_MOST_BYTES = 100_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--traffic", action="store_true", help="compare the messages of all tests with the schemas"
    )


class Traffic:
    """Counts messages and remembers what differs."""

    def __init__(self, config: pytest.Config) -> None:
        self._worker = getattr(config, "workerinput", {}).get("workerid", "main")
        self._is_worker = hasattr(config, "workerinput")
        self.counts: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self._names = {each.item.name for each in declared()}
        codes = {name: error["code"] for name, error in openrpc()["components"]["errors"].items()}
        self._errors = {
            method["name"]: {
                codes[each["$ref"].rpartition("/")[2]] for each in method.get("errors", ())
            }
            for method in openrpc()["methods"]
        }

    def sent(self, name: str, data: bytes, *, is_result: bool) -> None:
        self.counts["results" if is_result else "parameters"] += 1
        if name not in self._names or len(data) > _MOST_BYTES:
            self.counts["not compared"] += 1
            return
        value = json.loads(data)
        found = problems_of_result(name, value) if is_result else problems_of_params(name, value)
        for problem in found:
            self.problems[f"{name}: {problem}"] += 1

    def failed(self, name: str, code: int) -> None:
        self.counts["errors"] += 1
        # A notification that comes as a request is an unknown method.
        if self._errors.get(name) and code not in self._errors[name]:
            self.problems[f"{name}: the error {code} is not said to be one of its errors"] += 1

    # The end of the run.

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        _FOLDER.mkdir(parents=True, exist_ok=True)
        told = {"counts": self.counts, "problems": self.problems}
        if self._is_worker or self.counts:
            (_FOLDER / f"{self._worker}.json").write_text(json.dumps(told))
        if not self._is_worker:
            self.counts, self.problems = _all_workers()
            if self.problems:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        told = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        terminalreporter.write_line(f"traffic: {told or 'nothing'}")
        for problem, count in self.problems.most_common():
            terminalreporter.write_line(f"traffic: {count} times {problem}", red=True)


def _all_workers() -> tuple[Counter[str], Counter[str]]:
    counts: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    for path in _FOLDER.glob("*.json"):
        told = json.loads(path.read_text())
        counts.update(told["counts"])
        problems.update(told["problems"])
    return counts, problems


def _text(result: Encoded) -> bytes:
    """The JSON of *result*, whose bulk may have been sent as it is."""
    if result.bulk is None:
        return b"".join(result.parts)
    before, after = result.parts
    return before + encode_base64(result.bulk) + after


def install(config: pytest.Config) -> None:
    """Watch every peer of this process, if `--traffic` asks for it."""
    if not config.getoption("--traffic"):
        return
    if not hasattr(config, "workerinput"):
        for path in Path(_FOLDER).glob("*.json"):
            path.unlink()
    traffic = Traffic(config)
    config.pluginmanager.register(traffic, "traffic")
    call, notify, answer, fail = Peer.call, Peer.notify, Peer._answer, Peer._fail

    def watched_call(self: Peer, method: Method[Any, Any], params: Any, **options: Any) -> Any:
        traffic.sent(method.name, boundary.encode(params), is_result=False)
        return call(self, method, params, **options)

    def watched_notify(self: Peer, event: Event[Any], params: Any) -> None:
        traffic.sent(event.name, boundary.encode(params), is_result=False)
        notify(self, event, params)

    def watched_answer(self: Peer, request: Any, result: Any) -> None:
        is_encoded = type(result) is Encoded
        data = _text(result) if is_encoded else boundary.encode(result)
        traffic.sent(request.method, data, is_result=True)
        answer(self, request, result)

    def watched_fail(self: Peer, request: Any, error: BaseException) -> None:
        body = boundary.error_body(error, method=request.method)
        traffic.failed(request.method, body.code)
        fail(self, request, error)

    for name, function in (
        ("call", watched_call),
        ("notify", watched_notify),
        ("_answer", watched_answer),
        ("_fail", watched_fail),
    ):
        setattr(Peer, name, function)
