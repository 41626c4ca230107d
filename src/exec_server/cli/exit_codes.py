"""What the exit status of every command means, in one place."""

from __future__ import annotations

from exec_server.errors import ExecServerError

# Done as asked.
OK = 0
# It could not be done: no connection, a lost one, a refusal of the server.
FAILED = 1
# The command line is wrong.
USAGE = 2
# The command took longer than --timeout, as `timeout` has it.
TIMED_OUT = 124
# The command cannot be started, or was not found, as shells have it.
NOT_STARTED = 126
NOT_FOUND = 127
# Plus the number of the signal that ended it.
BY_SIGNAL = 128


class StatusError(ExecServerError):
    """An error that ends the program with a status of its own, instead of 1."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


RUN_STATUS_HELP = """\
exit status:
  of the command; 128 + N when signal N ended it
  1    the server cannot be reached, or the connection was lost
  2    the command line is wrong
  124  the command took longer than --timeout
  126  the command cannot be started, or not in the sandbox; 127 when it was not found
"""
