"""Command lines, read and refused as the reference (OpenAI Codex's `codex exec-server`) does.

The module is long because each refusal of the reference has its own text.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar

from exec_server.cli import exit_codes
from exec_server.cli.help_format import HelpFormatter
from exec_server.cli.output_format import asks_for_json, printable_json

# Type checkers know this name; `typing` takes a while to load.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from _typeshed import SupportsWrite


# How argparse begins its message about words that it does not know.
_UNRECOGNIZED = "unrecognized arguments: "
# How it begins its message about words that are missing.
_REQUIRED = "the following arguments are required: "


class Arguments(argparse.Namespace):
    """A command line that was read; equal ones have equal parts."""

    def __init__(self, values: argparse.Namespace, rest: list[str]) -> None:
        self.values = values
        # The destinations of the options that were given, in that order, without defaults.
        self.given: list[str] = []
        # The words from the first one that is not an option.
        self.rest = rest
        # True if a `--` was before them.
        self.is_ended = False


class ValueRequired(argparse.ArgumentTypeError):
    """Raised by a `type` for a value that counts as missing."""


class Flag(argparse.Action):
    """An option without a value; the variable *env* may be ``true`` or ``false`` instead."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, env: str | None = None, **rest: Any
    ) -> None:
        super().__init__(option_strings, dest, nargs=0, default=False, **rest)
        self.env = env

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, True)


class Append(argparse.Action):
    """An option that may be given several times; its values make a list."""

    def __init__(self, option_strings: Sequence[str], dest: str, **rest: Any) -> None:
        super().__init__(option_strings, dest, default=[], **rest)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), values])


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose options follow the rules of the reference.

    Declare options with `add_argument`, where a metavar is written ``<URL>``. There are two ways
    to read a command line, and an error of either ends the program with status 2:

    `parse_options` is for the server and for commands that pass the rest of their words on to a
    program (`run`, `shell`, `sandbox`): options end at the first other word, and refusals have the
    words of the reference. Only an Append option may be repeated.

    `parse_words` is for all other commands, whose positional words are declared. Options may
    stand anywhere; refusals have the same layout, in argparse's words.

    Names of options are never abbreviated.
    """

    def __init__(
        self, prog: str, *, usage: str, description: str = "", epilog: str = "", **rest: Any
    ) -> None:
        """*usage* is the text that follows *prog* in a usage line.

        The first example of *epilog*, which is the commonest use, is shown before the options, too.
        """
        # Values that completions offer for an option, by its destination; others are allowed.
        self.suggestions: dict[str, tuple[str, ...]] = {}
        # The names of commands, if there are any, which come before their options.
        self.commands: Sequence[str] = ()
        self._words: Sequence[str] = ()
        rest.setdefault("formatter_class", HelpFormatter)
        super().__init__(
            prog=prog,
            usage=f"{prog} {usage}",
            description=f"{description.rstrip()}\n\n{_first_example(epilog)}".rstrip(),
            epilog=epilog,
            allow_abbrev=False,
            **rest,
        )

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        wanted = _wanted.get()
        if wanted is None:
            super().print_help(file)
        else:
            wanted.append(self)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # The method of argparse ignores errors, and a full disk would go unnoticed.
        (sys.stderr if file is None else file).write(message)

    def format_usage(self) -> str:
        return f"Usage: {self.usage}\n"

    def error(self, message: str) -> NoReturn:
        """Print the error and the usage, then exit with status 2."""
        if message.startswith(_REQUIRED) and (unknown := self._first_unknown()):
            # A misspelt option is a likelier cause than a forgotten word.
            message = _UNRECOGNIZED + unknown
        if message.startswith(_UNRECOGNIZED):
            message += self._tip(message.removeprefix(_UNRECOGNIZED).split()[0])
        self._refuse(message, self.format_usage())

    def parse_options(self, words: Sequence[str], environ: Mapping[str, str]) -> Arguments:
        """Read options up to ``--`` or the first other word; the rest is returned untouched.

        A single ``-`` is a word, not an option. A variable in *environ* may set an option that was
        not given.
        """
        self._words = words
        defaults = {
            action.dest: action.default
            for action in self._actions
            if action.default is not argparse.SUPPRESS
        }
        reading = _Reading(self, Arguments(argparse.Namespace(**defaults), list(words)))
        reading.take_options()
        reading.take_environment(environ)
        return reading.arguments

    def parse_around(self, words: Sequence[str], environ: Mapping[str, str]) -> Arguments:
        """The same, where options may also stand after the first other word, up to a ``--``.

        The words after the ``--`` are never options. Without one, nothing else may follow.
        """
        arguments = self.parse_options(words, environ)
        first, later = arguments.rest[:1], arguments.rest[1:]
        if arguments.is_ended or not later or later[0] == "--" or not _is_option(later[0]):
            return arguments
        end = later.index("--") if "--" in later else len(later)
        before = words[: len(words) - len(arguments.rest)]
        moved = self.parse_options([*before, *later[:end], *first, *later[end:]], environ)
        # Otherwise one of these words is no option, and the caller refuses the order.
        is_whole = moved.rest == [*first, *later[end:]] and not moved.is_ended
        return moved if is_whole else arguments

    def parse_words(self, words: Sequence[str]) -> argparse.Namespace:
        """Read options and positional words in any order; after ``--`` there are only words."""
        self._words = words
        # Python 3.11's `parse_intermixed_args` forgets the `--`; with one, the order is given.
        has_end = "--" in words
        return self.parse_args(words) if has_end else self.parse_intermixed_args(words)

    def refuse_together(self, arguments: Arguments, *dests: str) -> None:
        """Exit if more than one of these options was given."""
        first_two = [dest for dest in arguments.given if dest in dests][:2]
        if len(first_two) == 2:
            one, other = map(self.shown, first_two)
            self.error(f"the argument '{one}' cannot be used with '{other}'")

    def require(
        self, arguments: Arguments, needs: Mapping[str, Sequence[str]], *always: str
    ) -> None:
        """Exit if an option is missing that a given one *needs*, or that is *always* needed."""
        needed = list(always)
        for dest, others in needs.items():
            if dest in arguments.given:
                needed += [other for other in others if other not in needed]
        missing = [dest for dest in needed if dest not in arguments.given]
        if missing:
            besides = [dest for dest in arguments.given if dest not in needed]
            self._refuse_missing(missing, needed + besides)

    def shown(self, dest: str) -> str:
        """An option as errors name it: ``--listen <URL>``."""
        return _shown(next(action for action in self._actions if action.dest == dest))

    def find_option(self, name: str) -> argparse.Action | None:
        """The option with exactly this name, dashes included."""
        return self._option_string_actions.get(name)

    def flags_from_environment(self) -> list[Flag]:
        """The flags that a variable can set."""
        return [action for action in self._actions if isinstance(action, Flag) and action.env]

    def refuse_unexpected(self, name: str) -> NoReturn:
        """Exit because of an option that does not exist."""
        self.error(f"unexpected argument '{name}' found{self._tip(name)}")

    def _first_unknown(self) -> str | None:
        """The first word that looks like an option and is none."""
        for word in self._words:
            if word == "--":
                return None
            name = _split(word)[0]
            if _is_option(word) and not name[1:2].isdigit() and self.find_option(name) is None:
                return word
        return None

    def _tip(self, name: str) -> str:
        """A paragraph about an option that does not exist."""
        if command := next((word for word in self._words if word in self.commands), None):
            return f"\n\n  tip: options of '{command}' come after it"
        from difflib import get_close_matches

        known = self._option_string_actions if name.startswith("-") else ()
        near = get_close_matches(name, known, n=1, cutoff=0.7)
        return similar_tip(near[0] if near else None, "argument")

    def refuse_value(
        self, action: argparse.Action, value: str, *, why: str = "", choices: Sequence[str] = ()
    ) -> NoReturn:
        """Exit because an option cannot have this value."""
        text = f"invalid value '{value}' for '{_shown(action)}'"
        self._refuse(text + (f": {why}" if why else "") + _possible_values(choices))

    def refuse_no_value(self, action: argparse.Action, *, choices: Sequence[str] = ()) -> NoReturn:
        """Exit because an option came without its value."""
        text = f"a value is required for '{_shown(action)}' but none was supplied"
        self._refuse(text + _possible_values(choices))

    def _refuse_missing(self, missing: list[str], usage: list[str]) -> NoReturn:
        listed = "".join(f"\n  {self.shown(dest)}" for dest in missing)
        options = " ".join(map(self.shown, usage))
        self._refuse(
            f"the following required arguments were not provided:{listed}",
            f"Usage: {self.prog} {options}\n",
        )

    def _refuse(self, message: str, usage: str = "") -> NoReturn:
        # Errors about a value show no usage, because the option itself exists.
        paragraphs = [f"error: {message}\n", usage, "For more information, try '--help'.\n"]
        if self.find_option("--output") is not None and asks_for_json(self._words):
            failure = {"exitCode": exit_codes.USAGE, "error": message}
            print(printable_json(failure))
        self.exit(exit_codes.USAGE, "\n".join(filter(None, paragraphs)))


# If this is a list, a parser that should print its help is appended to it instead.
_wanted: ContextVar[list[Parser] | None] = ContextVar("wanted", default=None)


def parser_of(command: Callable[[list[str]], int]) -> Parser:
    """The parser of a command: the one that prints its help."""
    found: list[Parser] = []
    token = _wanted.set(found)
    try:
        command(["--help"])
    except SystemExit:
        pass
    finally:
        _wanted.reset(token)
    return found[0]


class _Reading:
    """One pass over a command line."""

    def __init__(self, parser: Parser, arguments: Arguments) -> None:
        self.arguments = arguments
        self._parser = parser
        self._words = arguments.rest
        self._pending: list[tuple[argparse.Action, str]] = []

    def take_options(self) -> None:
        """Consume the leading options; values are checked after all names."""
        while self._words and _is_option(self._words[0]):
            word = self._words.pop(0)
            if word == "--":
                self.arguments.is_ended = True
                break
            self._take(word)
        for action, value in self._pending:
            action(self._parser, self.arguments.values, self._converted(action, value))

    def take_environment(self, environ: Mapping[str, str]) -> None:
        """Set the flags that were not given and whose variables are ``true``."""
        for flag in self._parser.flags_from_environment():
            value = environ.get(flag.env or "")
            if value is None or flag.dest in self.arguments.given:
                continue
            choices = ("true", "false")
            if not value:
                self._parser.refuse_no_value(flag, choices=choices)
            if value not in choices:
                self._parser.refuse_value(flag, value, choices=choices)
            if value == "true":
                self.arguments.given.append(flag.dest)
                setattr(self.arguments.values, flag.dest, True)

    def _take(self, word: str) -> None:
        name, value = _split(word)
        action = self._parser.find_option(name)
        if action is None:
            self._parser.refuse_unexpected(name)
        self._note(action)
        if action.nargs == 0:
            self._take_flag(action, name, value)
        elif action.nargs == "?" and value is None:
            # A value that may be left out comes after `=`; the next word is not the value.
            setattr(self.arguments.values, action.dest, action.const)
        else:
            self._pending.append((action, self._next_value(action) if value is None else value))

    def _note(self, action: argparse.Action) -> None:
        given = self.arguments.given
        if action.dest not in given:
            given.append(action.dest)
        elif not isinstance(action, Append):
            self._parser.error(f"the argument '{_shown(action)}' cannot be used multiple times")

    def _take_flag(self, action: argparse.Action, name: str, value: str | None) -> None:
        if value is not None and name.startswith("--"):
            self._parser.error(
                f"unexpected value '{value}' for '{name}' found; no more were expected"
            )
        action(self._parser, self.arguments.values, None, name)

    def _next_value(self, action: argparse.Action) -> str:
        if self._words and not _is_option(self._words[0]):
            return self._words.pop(0)
        name = _split(self._words[0])[0] if self._words else "--"
        if name != "--" and self._parser.find_option(name) is None:
            self._parser.refuse_unexpected(name)
        self._parser.refuse_no_value(action, choices=_choices(action))

    def _converted(self, action: argparse.Action, value: str) -> Any:
        choices = _choices(action)
        if choices and not value:
            self._parser.refuse_no_value(action, choices=choices)
        if choices and value not in choices:
            self._parser.refuse_value(action, value, choices=choices)
        if not callable(action.type):
            return value
        try:
            return action.type(value)
        except ValueRequired:
            self._parser.refuse_no_value(action)
        except argparse.ArgumentTypeError as exc:
            self._parser.refuse_value(action, value, why=str(exc))


def similar_tip(known: str | None, what: str) -> str:
    """A paragraph that points to the word that was probably meant, or nothing."""
    return f"\n\n  tip: a similar {what} exists: '{known}'" if known else ""


def count(text: str) -> int:
    """A decimal number from 0 to 2^64-1; a leading ``+`` is allowed."""
    if not text:
        raise argparse.ArgumentTypeError("cannot parse integer from empty string")
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        raise argparse.ArgumentTypeError("invalid digit found in string")
    digits = digits.lstrip("0") or "0"
    from exec_server.protocol.numbers import U64_MAX

    # `int` refuses thousands of digits with an error of its own.
    if len(digits) > len(str(U64_MAX)) or int(digits) > U64_MAX:
        raise argparse.ArgumentTypeError("number too large to fit in target type")
    return int(digits)


def positive_count(text: str) -> int:
    """A `count` of at least 1."""
    number = count(text)
    if number == 0:
        raise argparse.ArgumentTypeError("number would be zero for non-zero type")
    return number


def seconds(text: str) -> float:
    """A length of time in seconds: digits, with an optional fraction."""
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise argparse.ArgumentTypeError("expected a number of seconds, 0 or more")
    return float(text)


def path(text: str) -> str:
    """A file name that is not empty."""
    if not text:
        raise ValueRequired
    return text


def pid_namespace(text: str) -> str:
    """A mode of ``--linux-sandbox-pid-namespace``."""
    if text not in ("isolate", "inherit"):
        raise argparse.ArgumentTypeError("expected 'isolate' or 'inherit'")
    return text


def label(text: str) -> tuple[str, str]:
    """``KEY=VALUE``; the value may be empty."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise argparse.ArgumentTypeError("expected KEY=VALUE")
    return key.strip(), value.strip()


def _first_example(epilog: str) -> str:
    return epilog.partition("examples:\n")[2].partition("\n\n")[0]


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _split(word: str) -> tuple[str, str | None]:
    """The name in a word such as ``--name=value``, and the value if there is one."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    return word[:2], word[2:].removeprefix("=") if len(word) > 2 else None


def _shown(action: argparse.Action) -> str:
    name = action.option_strings[-1]
    return f"{name} {action.metavar}" if action.metavar else name


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(action.choices or ())


def _possible_values(choices: Sequence[str]) -> str:
    return f"\n  [possible values: {', '.join(choices)}]" if choices else ""
