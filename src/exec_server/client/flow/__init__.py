"""Flow control: output that is not read must neither fill the memory nor stop other tasks.

    flow_control.py      FlowControl: one per client, the owner of everything else
    process_flow.py      ProcessFlow: one per process, decides what its output means for the rest
    pacing.py            ReadPacing: when the connection is read
    reminders.py         Reminders: the timer for processes that wait for a reader
    acknowledgements.py  Acknowledgements: what the server is told with `process/ack`

An arrow means "calls", so there is no ring; only Reminders calls back, through a weak reference::

    ClientSession   SessionLink   HttpBody          TrackedProcess ──► OutputBuffer
          │              │            │                   │                 │
          └──────────────┼────────────┘                   │  received, taken, free to go on
                         ▼                                ▼                 ▼
                    FlowControl ──── open(process_id) ──► ProcessFlow ──► Credit
                         │                                │     ▲         (state.window)
                         │ owns                           │     ┆
                         ▼                                ▼     ┆ give_way, after 5 s
              ReadPacing      Reminders ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┘
                  │           Acknowledgements
                  ▼                  │
       pause and resume reading      ▼
           of the connection     `process/ack`

Who acknowledges what, and when:

* A process has a window if the server offers `processFlow`. The server makes it wait when that
  many bytes are sent and not acknowledged. Other processes are not affected.
    - OutputBuffer reports each chunk that is received or taken to ProcessFlow.
    - Credit counts. ProcessFlow acknowledges when a quarter of the window was taken.
    - A chunk counts as taken at once while a reader waits for the other stream, after the end,
      and after `give_way`.
    - If more than a quarter is held back, Reminders calls `give_way` after 5 seconds (*patience*)
      without progress. ProcessFlow then gives way if `wait()` is called for this process, or if it
      was never read and the program waits for other processes.
    - Without a connection an acknowledgement is repeated after the reconnect: by ProcessFlow, or
      from what Acknowledgements remembers about processes that are no longer tracked.
* A process without a window, and an HTTP body, can only slow down the whole connection.
    - From 1 MiB on (*untaken_bytes*) it falls behind, and ReadPacing stops reading the connection.
    - A call that waits for its answer resumes the reading at once.
    - A task that waits for output resumes it after 5 seconds without progress.
* Beyond 64 MiB (*untaken_max_bytes*) OutputBuffer discards output, and its reader is told.
"""
