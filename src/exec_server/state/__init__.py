"""What is remembered and decided without I/O: numbers, deadlines, windows.

    attachment.py   which connection holds which session, and when a session without one ends
    child_env.py    the environment of a child, from the request and its policy
    content_chunks.py  cuts content into chunks where the content itself says so
    env_floor.py    variables that a principal's commands may inherit or set
    event_order.py  pushed events, released in the order of their numbers
    expiry.py       keys that are forgotten at a deadline
    ignore_rules.py patterns as in .gitignore
    lease.py        who may type to a process, with an epoch
    limit_bounds.py what a process may use, between the defaults and the maximum of a server
    output_log.py   the retained output of a process, and the numbers of its events
    reconnect.py    when to try again after a lost connection, and when to give up
    recovery.py     the answer to a recovery read, merged into the order of events
    retention.py    one bound over the retained output of all processes
    slots.py        how many slots each principal has taken, and who waits for one
    token_bucket.py a rate of requests
    window.py       windows of output, their budget, and when a client acknowledges
    write_ids.py    ids of writes that were accepted, so that a repeated one is done once

Nothing here reads a clock: the time is an argument wherever it matters.
"""
