"""`exec-server registry env` and `events`: the lists of a running registry."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import run_to_exit_status
from exec_server.cli.options import add_output
from exec_server.cli.parser import Parser, positive_count
from exec_server.cli.registry.registry_options import add_registry, ask, pages, registry_token
from exec_server.cli.tables import (
    JsonListPrinter,
    TablePrinter,
    failure_teller,
    print_json,
    print_table,
)
from exec_server.protocol.registry import ENVIRONMENTS_PATH, EVENTS_PATH

_HEADINGS = ("NAME", "STATE", "VERSION", "PLATFORM", "SANDBOX", "STREAMS", "LABELS")
# The most names in one request line; for more names, all environments are requested.
_NAMES = 50


def env_command(words: list[str]) -> int:
    """List the environments that the token may see."""
    parser = Parser(
        "exec-server registry env",
        usage="[OPTIONS] --registry URL",
        description="List the environments of a registry that the token may see.",
    )
    add_registry(parser)
    add_output(parser)
    values = parser.parse_words(words)

    async def work() -> int:
        is_json = values.output == "json"
        return await list_environments(values.registry, registry_token(values), is_json=is_json)

    return run_to_exit_status(work, log_level="warning", tell=failure_teller(values.output))


async def list_environments(
    registry: str, token: str, names: Collection[str] = (), *, is_json: bool
) -> int:
    """Print all environments, or those with these *names*; the status is 1 if one is missing."""
    path = ENVIRONMENTS_PATH
    if 0 < len(names) <= _NAMES:
        path += "?" + urlencode([("name", name) for name in names])
    table, values, missing = TablePrinter(_HEADINGS), JsonListPrinter(), set(names)
    async with aclosing(pages(registry, path, token=token)) as found:
        async for page in found:
            # An old registry ignores the names in the query.
            chosen = [each for each in page if not names or each["name"] in names]
            missing.difference_update(each["name"] for each in chosen)
            if is_json:
                values.add(chosen)
            else:
                table.add(map(_environment_row, chosen))
    if is_json:
        values.end()
    return exit_codes.FAILED if missing else exit_codes.OK


def _environment_row(each: dict[str, Any]) -> list[str]:
    since = each["onlineSince"]
    state = "offline" if since is None else f"online since {_moment(since)}"
    return [
        each["name"],
        state,
        each["version"] or "-",
        each["platform"] or "-",
        each["sandbox"] or "-",
        str(each["streams"]),
        " ".join(f"{name}={value}" for name, value in each["labels"].items()),
    ]


def events_command(words: list[str]) -> int:
    """List events, the newest first."""
    parser = Parser(
        "exec-server registry events",
        usage="[OPTIONS] --registry URL",
        description="List events, the newest first: who used what, when and from where.",
    )
    add_registry(parser)
    parser.add_argument("--env", metavar="<NAME>", help="only events of this environment")
    parser.add_argument(
        "--principal", metavar="<NAME>", help="only events of tokens with this name"
    )
    parser.add_argument("--limit", metavar="<N>", type=positive_count, default=100)
    add_output(parser)
    values = parser.parse_words(words)

    async def work() -> int:
        wanted = {"environment": values.env, "principal": values.principal, "limit": values.limit}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        found = await ask(
            values.registry, "GET", f"{EVENTS_PATH}?{query}", token=registry_token(values)
        )
        if values.output == "json":
            print_json(found)
        else:
            headings = ["WHEN", "WHAT", "WHO", "ENVIRONMENT", "FROM", "DETAIL"]
            print_table(headings, [_event_row(each) for each in found])
        return exit_codes.OK

    return run_to_exit_status(work, log_level="warning", tell=failure_teller(values.output))


def _event_row(each: dict[str, Any]) -> list[str]:
    names = ("name", "principal", "environment_id", "address", "detail")
    return [_moment(each["at"]), *(each[name] or "-" for name in names)]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
