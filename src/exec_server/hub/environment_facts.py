"""What executors say of themselves, cut to size; nonsense is as good as nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from exec_server.hub.entities import Facts

_CHARACTERS = 200
_LABELS = 32


def read_facts(value: Any) -> Facts:
    try:
        facts = msgspec.convert(value or {}, Facts)
    except msgspec.ValidationError:
        return Facts()
    labels = list(facts.labels.items())[:_LABELS]
    return Facts(
        version=_short(facts.version),
        platform=_short(facts.platform),
        sandbox=_short(facts.sandbox),
        labels={name[:_CHARACTERS]: text[:_CHARACTERS] for name, text in labels},
    )


def _short(text: str | None) -> str | None:
    return None if text is None else text[:_CHARACTERS]
