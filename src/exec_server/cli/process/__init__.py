"""Commands that run processes on a server, and that come back to detached ones.

run.py                    `run`, and starting a command for `shell` and `sandbox`
run_options.py            the options of `run`
limit_options.py          `--limit`, and what became of the limits
asking.py                 asks about what a sandbox refuses, for `--ask`
denial_report.py          says at the end what was refused, or learned
shell.py                  `shell`
ssh.py                    `ssh`
ssh_words.py              the command line of `ssh`
attach.py                 `attach`
ps.py                     `ps`
logs.py                   `logs`
screen_command.py         `screen`
kill.py                   `kill`
detach.py                 detaches a process and resumes its session later
named_process.py          finds the process that the words of a command name
server_jobs.py            the durable jobs that a server lists
recent_output.py          where the newest output of a job begins
prune_jobs.py             `jobs prune`
saved_sessions.py         the records of detached sessions
saved_session_options.py  the parser of the commands for detached processes
session_holder.py         the program on this machine that follows a detached process
looking_on.py             looks on at a process that another program follows
watched_terminal.py       a process that is looked on at, for `attach --watch` and `logs -f`
own_keyboard.py           the keyboard of an own process, which others may take
participant_words.py      who looks on and who drives, in words
painted_screen.py         a picture of a whole terminal among the output
terminal_bridge.py        connects a process to this program's terminal, pipes and signals
terminal_io.py            reads and writes this program's descriptors in threads
shortened_output.py       the beginning and the end of a long output, for `--max-output`
terminal_modes.py         the modes that a program switches on in a terminal
terminal_queries.py       leaves old queries to a terminal out of the output that it shows
type_ahead.py             the buffer for input that was not passed on yet
escape_keys.py            finds `~.`, `~d` and others in the input
connection_notices.py     reports lost connections on stderr
end_words.py              says how a command ended, and what it used
"""
