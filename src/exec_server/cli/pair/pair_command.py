"""`exec-server pair`: let one machine use another one, with a code that a person types."""

from __future__ import annotations

import argparse
import shlex
import signal
from pathlib import Path

from exec_server.cli import exit_codes
from exec_server.cli.event_loop import in_loop, run_to_exit_status
from exec_server.cli.log_setup import print_error
from exec_server.cli.options import add_labels, add_output
from exec_server.cli.pair import claim, forget, offer
from exec_server.cli.pair.code_at_registry import full, is_address, read_address
from exec_server.cli.parser import Parser
from exec_server.cli.registry.registry_options import add_registry
from exec_server.cli.tables import failure_teller, print_json_failure
from exec_server.errors import ConfigurationError, ExecServerError
from exec_server.remote.enrolments import Enrolled, Enrolments, check_name

_DESCRIPTION = """\
Let one machine use another one, through a registry that both can reach. On the machine that will
run commands, `pair --registry` prints a code, which is valid once and for five minutes. On the
other machine, type the code: from then on every command there accepts the first machine's name as
a SERVER, and only the holder of the first machine's key is accepted. The first machine then serves
until Ctrl-C.
"""

_EPILOG = """\
A registry that was started with --open-pairing gives codes to every machine, for names that are not
taken. Other registries require a token that may enrol the name: --token-file, or the variable
EXEC_SERVER_REGISTRY_TOKEN. Without a token, the registry gives the machine one for this name only,
which becomes valid when the code is typed.

The key is in the --identity file, which is made if it is missing. The last part of the code is
never sent to the registry, so that the registry cannot substitute another key. The other machine
has a key too (harness_identity in $XDG_STATE_HOME/exec-server), which its first pairing makes. The
first machine serves only machines whose keys came with a code, so that the registry cannot let
itself in. --any-harness serves every client that the registry admits, for example Codex.

exit status:
  0    the machine served until a signal; the code was printed (--no-serve) or accepted; or the
       pairing was removed (--forget)
  1    the registry refused, the code was not typed in time, or the key does not fit to the code
  2    the command line is wrong
  128+N  signal N came before the code was typed; the code is withdrawn

examples:
  On the big machine:
      exec-server pair --registry https://registry.example.net big-1

  On the laptop, as the big machine says:
      exec-server pair K7QF-2MXT-9PWRSA@registry.example.net
      exec-server shell big-1

  On the big machine: serve again the next time; make a code for a second laptop meanwhile:
      exec-server pair --serve big-1
      exec-server pair --registry https://registry.example.net --no-serve --wait big-1

  With a label, and options of the server after `--`:
      exec-server pair --registry https://registry.example.net --label gpu=2 big-1 \\
          -- --log-level info

  End the pairing: on the laptop for this laptop, on the big machine for all laptops:
      exec-server pair --forget big-1
"""


def pair_command(words: list[str]) -> int:
    """Offer a code and serve, use a code, or forget a pairing."""
    words, serving = _split(words)
    parser = _parser()
    values = parser.parse_words(words)
    _check(parser, values, serving)
    try:
        if values.word is not None and is_address(values.word):
            values.code, values.registry = read_address(values.word)
        elif values.registry is not None:
            values.registry = full(values.registry)
        if values.forget is None and values.code is None:
            return _serve_or_offer(values, serving)
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT
    except ExecServerError as exc:
        print_error(str(exc))
        if values.output == "json":
            print_json_failure(exit_codes.FAILED)
        return exit_codes.FAILED

    async def work() -> int:
        if values.forget is not None:
            return await forget.forget(values.forget)
        is_json = values.output == "json"
        return await claim.claim(values.registry, values.code, values.alias, is_json=is_json)

    return run_to_exit_status(work, log_level="warning", tell=failure_teller(values.output))


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of this command, and those after `--`, which are for the server."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _parser() -> Parser:
    parser = Parser(
        "exec-server pair",
        usage="[OPTIONS] (--registry URL | --serve) [ENVIRONMENT] [-- OPTIONS...]\n"
        "       exec-server pair [OPTIONS] CODE@REGISTRY\n"
        "       exec-server pair --forget NAME",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_registry(parser, required=False)
    add = parser.add_argument
    add(
        "word",
        metavar="ENVIRONMENT | CODE@REGISTRY",
        nargs="?",
        help="a name for this machine [default: its host name]; or the code of the other machine",
    )
    add("--code", metavar="<CODE>", help="the code of the other machine, with --registry")
    add(
        "--as",
        metavar="<NAME>",
        dest="alias",
        help="another name for it on this machine [default: its own]",
    )
    add(
        "--identity",
        metavar="<FILE>",
        help="file of the key to serve with [default: identity in $XDG_STATE_HOME/exec-server]",
    )
    add_labels(parser)
    add("--serve", action="store_true", help="serve under an earlier pairing, without a new code")
    add("--no-serve", action="store_true", help="only print a code, and the command to serve")
    add("--wait", action="store_true", help="with --no-serve: wait until the code is typed")
    add(
        "--any-harness",
        action="store_true",
        help="serve every client that the registry admits, not only machines that were paired",
    )
    add("--forget", metavar="<NAME>", help="remove a pairing, here and at the registry")
    add_output(parser)
    return parser


def _check(parser: Parser, values: argparse.Namespace, serving: list[str]) -> None:
    is_typed = values.code is not None or (values.word is not None and is_address(values.word))
    if values.forget is not None:
        if is_typed or values.word is not None or values.serve or values.no_serve:
            parser.error("--forget cannot be used with other words or options of pair")
        return
    if values.code is not None and values.word is not None:
        parser.error("give either the name of an environment or the code of another machine")
    if values.registry is None and not values.serve and (values.code is not None or not is_typed):
        if values.code is not None or values.word is not None:
            parser.error(
                "say which registry: --registry URL, or CODE@REGISTRY as the other machine has "
                "printed it"
            )
        parser.error("say what to do: --registry URL, --serve, CODE@REGISTRY or --forget NAME")
    if is_typed and values.code is None and values.registry is not None:
        parser.error("CODE@REGISTRY names the registry already")
    if values.alias is not None and not is_typed:
        parser.error("--as needs a code")
    if values.serve and values.no_serve:
        parser.error("--serve cannot be used with --no-serve")
    if values.wait and not values.no_serve:
        parser.error("--wait needs --no-serve")
    is_for_serving = values.identity or values.labels or values.serve or values.no_serve or serving
    if is_typed and (is_for_serving or values.any_harness):
        parser.error("--identity, --label and --serve cannot be used with a code")


# The machine that will run commands.


def _serve_or_offer(values: argparse.Namespace, serving: list[str]) -> int:
    plan = _plan(values, serving)
    from exec_server.cli.serve.serve_options import parse_serve

    # Wrong options of the server are reported before a code is shown.
    parse_serve(offer.serving_words(plan, values.token_file))
    if not values.serve:
        # The options of the server decide about logging, which is therefore not configured here.
        status = in_loop(offer.offer(plan))
        if status != exit_codes.OK or not plan.serves:
            return status
    return _serve(plan)


def _plan(values: argparse.Namespace, serving: list[str]) -> offer.OfferPlan:
    """Raises ConfigurationError."""
    name = check_name(values.word) if values.word is not None else offer.host_name()
    known = offer.known_enrolment(name, values.registry)
    if values.serve and known is None and values.registry is None:
        raise ConfigurationError(f"this machine is not enrolled as `{name}`: it needs a code first")
    identity = values.identity or (known.identity if known else offer.default_identity())
    labels = [word for key, text in values.labels for word in ("--label", f"{key}={text}")]
    registry = values.registry
    if registry is None:
        assert known is not None
        registry = known.registry
    return offer.OfferPlan(
        registry=registry,
        name=name,
        identity=Path(identity).absolute(),
        token_file=values.token_file,
        serving=(*labels, *serving),
        serves=not values.no_serve,
        waits=values.wait,
        is_restricted=not values.any_harness and _is_restricted(name, values, known),
        is_json=values.output == "json",
    )


def _is_restricted(name: str, values: argparse.Namespace, known: Enrolled | None) -> bool:
    """True if only machines with known keys are served.

    Enrolments of earlier versions have no file of keys. They stay as they are, because their
    machines have no keys that could be known.
    """
    is_first_code = known is None and not values.serve and (values.wait or not values.no_serve)
    return is_first_code or Enrolments().harness_file(name).exists()


def _serve(plan: offer.OfferPlan) -> int:
    from exec_server.cli.serve.serve_command import serve_command

    holder = offer.holder_of(plan)
    if holder.token is None:
        raise ConfigurationError(
            f"this machine is not enrolled as `{plan.name}`; it needs a code first:\n"
            f"  exec-server pair --registry {shlex.quote(plan.registry)} {plan.name}"
        )
    return serve_command(offer.serving_words(plan, holder.token_file))
