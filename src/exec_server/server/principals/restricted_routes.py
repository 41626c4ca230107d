"""The routes of a connection whose principal may not use every method.

An unrestricted principal uses the server's own table, so its requests cost nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exec_server.access.method_scopes import missing_scope, missing_scope_to_open
from exec_server.access.principal import Principal, Scope
from exec_server.errors import ScopeRefused
from exec_server.protocol import fs
from exec_server.rpc.router import Route

Watch = Callable[[Route], Route]


def restricted_routes(
    routes: dict[str, Route], may: frozenset[Scope], watch: Watch
) -> dict[str, Route]:
    """*routes*, where a refusal answers the methods that need other scopes than *may*.

    The routes that refuse are passed through *watch*.
    """
    table = {name: _restricted(route, may, watch) for name, route in routes.items()}
    if fs.OPEN.name in routes:
        table[fs.OPEN.name] = _open_by_mode(routes[fs.OPEN.name], may, watch)
    return table


def _restricted(route: Route, may: frozenset[Scope], watch: Watch) -> Route:
    scope = missing_scope(may, route.method)
    return route if scope is None else watch(_refusing(route, scope))


def _refusing(route: Route, scope: Scope) -> Route:
    def refuse(ctx: Any, params: Any) -> Any:
        raise ctx.refuse_scope(scope, route.method.name)

    return Route(route.method, refuse)


def _open_by_mode(route: Route, may: frozenset[Scope], watch: Watch) -> Route:
    def open_file(ctx: Any, params: Any) -> Any:
        scope = missing_scope_to_open(may, params)
        if scope is None:
            return route.handler(ctx, params)
        return watch(_refusing(route, scope)).handler(ctx, params)

    return Route(route.method, open_file)


def scope_refused(who: Principal, scope: Scope) -> ScopeRefused:
    """The error for a principal that lacks *scope*."""
    return ScopeRefused(
        f"principal `{who.name}` may not use {scope}", scope=scope, principal=who.name
    )
