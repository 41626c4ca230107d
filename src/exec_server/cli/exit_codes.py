"""The exit statuses of all commands, what they mean, and how errors are told."""

from __future__ import annotations

from exec_server.errors import ExecServerError, ProcessLost, SessionForgotten

# The command did what it was asked to do.
OK = 0
# It failed: there was no connection, it was lost, or the server refused.
FAILED = 1
# The command line is wrong.
USAGE = 2
# The command took longer than --timeout; `timeout` has the same status.
TIMED_OUT = 124
# The exit status of the command is unknown and stays so: it was lost, for example in a restart of
# its machine.
LOST = 125
# The command cannot be started, or was not found; shells have the same statuses.
NOT_STARTED = 126
NOT_FOUND = 127
# The number of the signal that ended the command is added.
BY_SIGNAL = 128


class StatusError(ExecServerError):
    """An error that ends the program with a status of its own, instead of 1."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def status_of(error: ExecServerError) -> int:
    """The status with which *error* ends the program."""
    if isinstance(error, ProcessLost):
        return LOST
    return error.exit_status if isinstance(error, StatusError) else FAILED


def text_of(error: ExecServerError) -> str:
    """The text with which *error* is told."""
    return _FORGOTTEN if isinstance(error, SessionForgotten) else str(error)


_FORGOTTEN = (
    "the server was restarted, or the connection was away for too long: the session is lost, and "
    "what ran in it has ended"
)

NO_CONNECTION = "the server cannot be reached, or the connection was lost"
RUN_STATUS_HELP = f"""\
exit status:
  the status of the command; 128 + N if signal N ended it
  1    {NO_CONNECTION}
  2    the command line is wrong
  124  the command took longer than --timeout
  125  the status of the command is unknown: it was lost, for example in a restart of the machine
  126  the command, or its sandbox, cannot be started
  127  the command was not found
"""
