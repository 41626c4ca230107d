"""Models of the terminals of processes: what they show, and waiting for it.

screens.py           the models of a server: made when they are first asked for
screen_tap.py        one process that has a model: feeds it, answers queries for it
earlier_screen.py    what a terminal showed before, from retained output
host_link.py         the server's side of the host: packets to and from it
host_messages.py     the packets
host_main.py         the host: the process that holds the models
screen_model.py      one terminal: its versions, its changes, its waits
held_output.py       output of a flood, of which the end is enough
screen_waits.py      the conditions of waits
command_marks.py     the marks of shells with integration
last_command.py      what these marks say of the last command
query_answers.py     answers of other terminals, which must not come a second time
"""
