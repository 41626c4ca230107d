"""`exec-server`: run the command that the first word names; without one, serve."""

from __future__ import annotations

import signal
import sys

from exec_server.cli import exit_codes, standard_streams

# The commands that may run commands of others.
_SERVERS = ("forward", "pair")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    standard_streams.prepare()
    try:
        try:
            if argv is None:
                return _run(sys.argv[1:], is_program=True)
            return _run(argv, is_program=False)
        finally:
            # Help texts and refusals leave by SystemExit; their output must be complete, too.
            standard_streams.finish()
    except standard_streams.OutputFailed as exc:
        standard_streams.discard()
        return standard_streams.report(exc)
    except BrokenPipeError:
        # The reader of our output has closed it, as `| head` does.
        standard_streams.discard()
        return exit_codes.BY_SIGNAL + signal.SIGPIPE
    except KeyboardInterrupt:
        return exit_codes.BY_SIGNAL + signal.SIGINT


def _run(words: list[str], *, is_program: bool) -> int:
    """Run a command; only if this is the whole program, it may be started again."""
    from exec_server.cli.commands import find_entry

    entry = find_entry(words[0]) if words else None
    if is_program and (entry is None or entry.name in _SERVERS):
        from exec_server.cli.secret_environment import hide

        hide(words)
    if entry is not None:
        return entry.load()(words[1:])
    from exec_server.cli.serve.serve_command import serve_command

    return serve_command(words)


if __name__ == "__main__":
    sys.exit(main())
