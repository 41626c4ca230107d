"""`fs/*`: the files of the machine, with and without a sandbox.

    file_calls.py      the calls of one request, as a protocol for both
    file_service.py    the files of a connection without a sandbox
    file_admission.py  decides whether a request needs a sandbox
    open_files.py      fs/open, fs/readBlock, fs/writeBlock and fs/close
    handles.py         the open files of a connection by their names
    runner.py          runs the work of one connection in threads
    workers.py         the threads that all connections share
    operations/        the blocking work of each method, and the table of all
    nowait/            calls that never wait, and so need no thread
    watch/             fs/watchMissing
    agents/            fs/search and fs/watch, each in a process of its own
    confined/          the same calls in a sandboxed helper process

A new method needs its declaration in `protocol/fs.py`, a function with an entry in
`operations/table.py`, a handler in `server/handlers/fs.py`, and a caller in the client.
"""
