"""This program's own terminal, pipes and signals, connected to a process.

terminal_bridge.py        connects a process to this program's terminal, pipes and signals
terminal_io.py            reads and writes this program's descriptors in threads
terminal_modes.py         the modes that a program switches on in a terminal
terminal_queries.py       leaves old queries to a terminal out of the output that it shows
sequence_form.py          the form in which sequences of control characters are looked for
type_ahead.py             the buffer for input that was not passed on yet
escape_keys.py            finds `~.`, `~d` and others in the input
own_keyboard.py           the keyboard of an own process, which others may take
painted_screen.py         a picture of a whole terminal among the output
watched_terminal.py       a process that is looked on at, for `attach --watch` and `logs -f`
shortened_output.py       the beginning and the end of a long output, for `--max-output`
connection_notices.py     reports lost connections on stderr
"""
