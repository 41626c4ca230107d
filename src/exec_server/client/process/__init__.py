"""Processes of a client, and their output.

processes.py          the methods of a client that are about processes
remote_process.py     RemoteProcess: the handle that users hold
tracked_process.py    the inside of a handle: events in order, recovery
tracked_processes.py  all processes of a client: routes events, recovers after a reconnect
output_buffer.py      output that is not read yet; the events that users see
output_view.py        OutputView: one stream, its lines, and reading up to a separator
time_limit.py         the time limits of waits
bounded_output.py     the beginning and the end of a long output
limit_support.py      whether a server can limit what a process uses
start_errors.py       what a start has failed at: the program, or its directory
screen_calls.py       what a terminal shows: the calls of a client and of a handle
screen_data.py        the same as data
denial_calls.py       what a sandbox refused, and grants
sharing_calls.py      `watch` and `control`: looking on, and driving
watched_process.py    WatchedProcess: the handle of one who looks on
watched_processes.py  all watches of a client: routes events, watches again after a reconnect
control.py            who takes part in a process, as the server has told
input_ahead.py        input with two writes under way
framed_input.py       input that a helper command ends, on servers that cannot end it
python_helper.py      helper commands in Python that the server's machine runs
run_to_end.py         `run`: write input, collect output, enforce the timeout
"""
