"""`exec-server`: run the command that the first word names; without one, serve.

This module loads little: `exec-server --version` needs nothing else.
"""

from __future__ import annotations

import sys

from exec_server.cli import lean_libraries, quick_exit, standard_streams
from exec_server.cli.program_name import version_line

# The commands that may run commands of others.
_SERVERS = ("forward", "pair")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status; without *argv* it may end the program."""
    standard_streams.prepare()
    try:
        try:
            if argv is not None:
                return _run(argv, is_program=False)
            status = _run_program(sys.argv[1:])
        finally:
            # Help texts and refusals leave by SystemExit; their output must be complete, too.
            standard_streams.finish()
        return quick_exit.leave(status)
    except standard_streams.OutputFailed as exc:
        standard_streams.discard()
        return standard_streams.report(exc)
    except BrokenPipeError:
        # The reader of our output has closed it, as `| head` does.
        standard_streams.discard()
        return _by_signal("SIGPIPE")
    except KeyboardInterrupt:
        return _by_signal("SIGINT")


def _run_program(words: list[str]) -> int:
    try:
        return _run(words, is_program=True)
    except SystemExit as exc:
        if isinstance(exc.code, int):
            return exc.code
        raise


def _run(words: list[str], *, is_program: bool) -> int:
    """Run a command; only if this is the whole program, it may be started again."""
    if words in (["-V"], ["--version"]):
        print(version_line())
        return 0
    if is_program and words[:1] == ["ssh-proxy"]:
        from exec_server.cli.ssh_door.known_door import use_open_door

        # OpenSSH waits for this with each connection, and most connections need nothing else.
        if use_open_door(words[1:]):
            return 0
    if is_program:
        from exec_server.cli import quick_imports

        quick_imports.use()
        lean_libraries.load_argparse()
    if words in (["-h"], ["--help"]):
        from exec_server.cli.serve.serve_parser import serve_parser

        # This prints the help and ends the program, even if the variables of the server are wrong.
        serve_parser().parse_args(words)
    from exec_server.cli.commands import find_entry
    from exec_server.cli.loading import loading

    entry = find_entry(words[0]) if words else None
    if is_program and (entry is None or entry.name in _SERVERS):
        from exec_server.cli.secret_environment import hide

        hide(words)
    if is_program:
        from exec_server.cli import late_modules

        late_modules.use()
        with loading():
            lean_libraries.load_msgspec()
    if entry is not None:
        with loading():
            command = entry.load()
        return command(words[1:])
    with loading():
        from exec_server.cli.serve.serve_command import serve_command

    return serve_command(words)


def _by_signal(name: str) -> int:
    """The status of a program that a signal has ended."""
    import signal

    from exec_server.cli import exit_codes

    return exit_codes.BY_SIGNAL + signal.Signals[name]


if __name__ == "__main__":
    sys.exit(main())
