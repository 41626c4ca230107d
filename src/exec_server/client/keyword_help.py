"""The options of a struct as keyword arguments, for `help()` and editors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

F = TypeVar("F", bound=Callable[..., Any])


def with_keywords_of(kind: type[msgspec.Struct]) -> Callable[[F], F]:
    """Show the fields of *kind* as keyword arguments in `help()`, instead of `**options`."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        first = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        keywords = zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*first, *(_keyword(kind, name, default) for name, default in keywords)]
        )
        return function

    return decorate


def _keyword(kind: type, name: str, default: object) -> inspect.Parameter:
    owner = next(each for each in kind.__mro__ if name in vars(each).get("__annotations__", ()))
    annotation = owner.__annotations__[name]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
