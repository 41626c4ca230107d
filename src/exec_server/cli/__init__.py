"""The command line: one module for each command, and what the commands share.

main.py              runs the command that the first word names
program_name.py      the name of the program, and what `--version` prints
loading.py           loads modules without garbage collections
late_modules.py      stands in for modules that libraries rarely use, until they use them
lean_libraries.py    loads argparse and msgspec without what they can do without
quick_exit.py        ends the program without taking its modules apart
quick_imports.py     finds modules of this package without a search
commands.py          the table of commands; dispatch, help, suggestions and completion use it
parser.py            reads command lines and refuses wrong ones
help_format.py       the layout of help texts
output_format.py     the format that a wrong command line asks for
options.py           the options that several commands have
server_access.py     servers by URL or name, and how to connect to them
event_loop.py        runs a command and turns its errors into an exit status
exit_codes.py        the exit statuses
secret_environment.py  keeps the secrets of a server from the commands that it runs
standard_streams.py  standard input, output and error, also if they are closed or full
log_setup.py         logging to stderr, as text or JSON
tables.py            output as columns or JSON
os_error_text.py     the number of an operating system's error in a server's message
help_command.py      `help`
audit_command.py     `audit`
env.py               `env`
web_command.py       `web`
stop.py              `stop`
keygen.py            `keygen`
fingerprint.py       `fingerprint`
protocol_command.py  `protocol`
conformance_command.py  `conformance`
cert/                `cert`
token/               `token` and `whoami`: the principals of a server
serve/               the server itself, and `forward`
process/             `run`, `shell`, `attach`, `ps`, `logs`, `kill`, `jobs`
files/               `cp`, `ls`, `tree`, `find`, `stat`, `cat`, `mkdir`, `rm`
recordings/          `recordings`, `replay`
sandbox/             `sandbox`, `doctor`
ssh_door/            `ssh-config` and `ssh-proxy`
port/                `port`
mcp/                 `mcp`
registry/            `registry`
pair/                `pair`
completion/          `completion`
"""

import sys
from types import TracebackType


def _end(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """End quietly after Ctrl-C, which may come while modules are still being imported."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, where)


# This is the first code of the command line that runs.
sys.excepthook = _end
