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
prune_jobs.py             `jobs prune`
end_words.py              says how a command ended, and what it used
own_terminal/             this program's own terminal, connected to a process
detached/                 processes that were detached
"""
