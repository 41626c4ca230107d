"""Which function answers which method."""

from __future__ import annotations

from types import ModuleType

import pytest

from exec_server.rpc.router import Route, Router, handles
from tests.rpc.both_ends import ECHO, STOP, Numbered


def echo(context: None, params: Numbered) -> Numbered:
    """Say it again."""
    return params


def module(**members: object) -> ModuleType:
    made = ModuleType("made")
    vars(made).update(members)
    return made


def test_routes_of_all_modules_are_found_by_name():
    router = Router(module(echo=handles(ECHO)(echo), helper=echo), module(stop=handles(STOP)(echo)))
    assert router.routes == {ECHO.name: Route(ECHO, echo), STOP.name: Route(STOP, echo)}


def test_a_method_has_one_handler():
    with pytest.raises(AssertionError, match="test/echo has two handlers"):
        Router(module(one=handles(ECHO)(echo), two=handles(ECHO)(echo)))


def test_a_handler_can_still_be_called_and_read():
    handled = handles(ECHO)(echo)
    assert handled(None, Numbered(1)) == Numbered(1)
    assert handled.__doc__ == "Say it again."
