"""Processes of a session: started by a keeper, read, written, signalled and ended.

    process_table.py     the processes of one session; the process/* methods
    process_launcher.py  a request, checked and prepared, and its program started
    process_answers.py   the results of process/start, process/read and process/list
    child.py             one process: its state, its output, its exit, and the events of both
    process_facts.py     what is known of a process: what was asked for, and how it ended
    child_parts.py       what a process is connected with: client, outputs, input, sandbox
    pump.py              a descriptor that is read when the client can take more
    echo_first.py        lets the answer to small input go before the bulk output of others
    stdin.py             the queue in front of a child's input
    start_terms.py PURE  what the operator decides about a start
    shell_integration.py  makes bash, zsh and fish mark prompts and commands
    tap.py               what looks on beside the session: models of screens, viewers, recordings
    spawn.py             the server's side of the keeper
    keeper_command.py    the command line that runs a keeper
    keeper_socket.py     its messages to and from a keeper
    keeper.py            the keeper, a program of its own that owns all children
    keeping/             the parts of the keeper
    exit_facts.py        what the keeper finds out about the end of a program
    signal_senders.py    who sends signals, as the kernel tells it to root
    kernel_log.py        which processes were killed for memory, as the kernel's log says it
    end_report.py PURE   why a process ended and what it used, from status, facts and orders
    journal.py           output and events of a durable job on disk
    journaling/          the parts of the journal
    durable/             processes that outlive the server
    limiting/            limits of what a process may use
    denial_watch.py      what a sandbox refused to one process, as its supervisor tells it
    host_denials.py      the hosts that its managed network refused
    given_grants.py PURE the grants that a start brings along
    sandboxed_start.py   a start in a sandbox: prepared in a thread, then given to the keeper
    confinement.py       tells processes of a sandbox from all others
    snapshot.py          shell snapshots of a session: startup files are run once
    shell_state.py PURE  what startup files leave behind: captured and restored
    snapshot_files.py    the files of the snapshots, which no sandbox can see

Nothing here talks to a client: events go to an Outlet, which the session is.
"""
