"""Read the YAML of front matter and of policy files with PyYAML; no I/O.

Every scalar is text, as PyYAML's BaseLoader has it, because only the reader of a field knows
whether ``on`` is a word. A plain null is None. The values are made from PyYAML's events, so that
anchors, aliases and tags are refused before anything is built from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

# Front matter and policies have some hundred characters. The parser in Python, which PyYAML uses
# without libyaml, reads about 100,000 characters in a second.
MAX_CHARS = 256 * 1024
MAX_DEPTH = 32

_BYTE_ORDER_MARK = "\ufeff"
_NULLS = ("", "~", "null", "Null", "NULL")


class YamlError(ValueError):
    """The text is not one YAML document of plain data. *line* counts from 0, if it is known."""

    def __init__(self, text: str, *, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


class YamlMapping(dict[str, "Value"]):
    """A mapping. A key that occurs twice is an error only when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: set[str] = set()

    def field(self, name: str) -> Value:
        """The value of *name*, or None. Raises YamlError if the key occurs twice."""
        if name in self.repeated:
            raise YamlError(f"the key `{name}` occurs twice")
        return self.get(name)


Value = str | None | list["Value"] | YamlMapping


def parse(text: str) -> Value:
    """The one document in *text*, or None if there is none. Raises YamlError and nothing else."""
    if len(text) > MAX_CHARS:
        raise YamlError(f"longer than {MAX_CHARS} characters")
    yaml = _yaml()
    try:
        events = yaml.parse(text.removeprefix(_BYTE_ORDER_MARK), Loader=_loader())
        return _EventReader(yaml, events).document()
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        raise YamlError(str(exc), line=mark.line if mark is not None else None) from exc
    except YamlError:
        raise
    except (ValueError, OverflowError) as exc:
        # The parser in Python raises these for escapes that are no characters.
        raise YamlError(str(exc)) from exc


@cache
def _yaml() -> ModuleType:
    # This is loaded with the first discovery, which most servers are never asked for.
    import yaml

    return yaml


def _loader() -> Any:
    """The loader of libyaml, or the one in Python where PyYAML was built without libyaml."""
    yaml = _yaml()
    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _EventReader:
    """Makes values from the events of one stream."""

    def __init__(self, yaml: ModuleType, events: Iterator[Any]) -> None:
        self._yaml = yaml
        self._events = events

    def document(self) -> Value:
        yaml = self._yaml
        value: Value = None
        count = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                count += 1
                if count > 1:
                    raise YamlError("more than one document")
                value = self._value(next(self._events), 0)
        return value

    def _value(self, event: Any, depth: int) -> Value:
        """The value that begins with *event*."""
        yaml = self._yaml
        if depth > MAX_DEPTH:
            raise YamlError("nested too deeply")
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise YamlError("anchors and aliases are not supported")
        if event.tag is not None:
            raise YamlError("tags are not supported")
        if isinstance(event, yaml.ScalarEvent):
            text = str(event.value)
            is_plain = event.implicit[0]
            return None if is_plain and text in _NULLS else text
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(depth)
        return self._mapping(depth)

    def _sequence(self, depth: int) -> Value:
        items: list[Value] = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> Value:
        found = YamlMapping()
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            if not isinstance(event, self._yaml.ScalarEvent | self._yaml.AliasEvent):
                raise YamlError("a key that is not text")
            # A null is a key like any other text.
            key = self._value(event, depth + 1)
            name = key if isinstance(key, str) else ""
            if name in found:
                found.repeated.add(name)
            found[name] = self._value(next(self._events), depth + 1)
        return found
