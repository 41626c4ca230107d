"""Machines that lack a backend."""

from __future__ import annotations

import pytest

from exec_server.sandbox.backends import HERE, Report

needs_bubblewrap = pytest.mark.skipif(
    not HERE.bubblewrap_report.works, reason=f"{HERE.bubblewrap_report.obstacle}"
)
needs_landlock = pytest.mark.skipif(
    not HERE.landlock_report.works, reason=f"{HERE.landlock_report.obstacle}"
)
needs_some_backend = pytest.mark.skipif(
    not (HERE.bubblewrap_report.works or HERE.landlock_report.works), reason="no backend works here"
)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these backends did not work in this process."""
    for name in names:
        report = Report(name, False, None, f"no {name} here", f"install {name}")  # type: ignore[arg-type]
        monkeypatch.setitem(HERE.__dict__, f"{name}_report", report)
        if name == "bubblewrap":
            monkeypatch.setitem(HERE.__dict__, name, None)
