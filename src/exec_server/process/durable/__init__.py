"""Durable jobs: processes, output, input and exit statuses that outlive the server.

    durable_jobs.py     the jobs of a server and of its sessions; what earlier servers have left
    durable_job.py      one job: its folder, its journal, its messages to the keeper
    durable_child.py    one process on a journal, started here or by an earlier server
    durable_stdin.py    its input: this server writes it, or the keeper does
    direct_input.py     the input that this server writes, through a log shared with the keeper
    journal_log.py      its output, numbered by the journal and read from it
    journal_pump.py     moves an output into the journal
    state_directory.py  the files: who owns them, jobs and sessions
    stored_control.py   who drives a job, for the next server
    stored_screen.py    the sizes of its terminal and other facts, for the next server
    durable_spawner.py  the server's side of the durable keeper
    keeper_hello.py     the first message of that keeper: whether the two understand each other
    durable_keeper.py   the durable keeper, a program of its own
    keeper_strangers.py  connections to it that have not sent its key yet
    kept_job.py         one job, in that keeper
    kept_input.py       the input of a job, in that keeper

The journal itself is ../journal.py; the keeper loads it, too.
"""
